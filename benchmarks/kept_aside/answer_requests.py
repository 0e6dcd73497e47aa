"""A server's inner loop: sixteen images of different sizes are resized and normalised in numpy, sent to
the device, classified, and the top five come back.

Truth: the host's own work. The numpy resize takes about nine tenths of the step. Nothing overlaps: each
answer is waited for, so the true-fp32 network (about 8 ms) and the pageable copy are added to it, and
bf16 saves what it saves of the network and no more.

Fixes: device_preprocess: the raw uint8 images are sent and resized on the device. bf16: the network in
bf16.
"""

import numpy as np
import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "host-work"]]
ALSO = []
FIXES = ["device_preprocess", "bf16"]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """Bilinear, by hand."""
    height, width = image.shape[:2]
    ys, xs = np.linspace(0, height - 1, side), np.linspace(0, width - 1, side)
    y0, x0 = ys.astype(int), xs.astype(int)
    y1, x1 = np.minimum(y0 + 1, height - 1), np.minimum(x0 + 1, width - 1)
    wy, wx = (ys - y0).astype(np.float32)[:, None, None], (xs - x0).astype(np.float32)[None, :, None]
    image = image.astype(np.float32)
    top = image[y0][:, x0] * (1 - wx) + image[y0][:, x1] * wx
    bottom = image[y1][:, x0] * (1 - wx) + image[y1][:, x1] * wx
    return top * (1 - wy) + bottom * wy


class Classifier(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, stride=16)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, depth = (16, 224, 768, 6) if size == "gpu" else (2, 32, 64, 1)
    low, high = (240, 420) if size == "gpu" else (40, 60)
    model = Classifier(width, depth).eval().requires_grad_(False).to(device)
    dtype = torch.bfloat16 if fix == "bf16" else torch.float32
    model = model.to(dtype)
    dice = np.random.default_rng(0)
    queue = [
        [dice.integers(0, 256, (*dice.integers(low, high, 2), 3), dtype=np.uint8) for _ in range(batch)]
        for _ in range(4)
    ]
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    mean_there = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
    std_there = torch.tensor(STD, device=device).view(1, 3, 1, 1)
    number = 0

    def prepared(requests: list[np.ndarray]) -> torch.Tensor:
        if fix == "device_preprocess":
            made = []
            for image in requests:
                x = torch.from_numpy(image).to(device).permute(2, 0, 1)[None].float()
                made.append(nn.functional.interpolate(x, (side, side), mode="bilinear", align_corners=True))
            return (torch.cat(made) / 255 - mean_there) / std_there
        pixels = np.stack([(resized(image, side) / 255 - mean) / std for image in requests])
        return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()).to(device)

    @torch.no_grad()
    def step() -> list[dict[str, float]]:
        nonlocal number
        x = prepared(queue[number % 4]).to(dtype)
        number += 1
        best = model(x).float().softmax(-1).topk(5)
        scores, names = best.values.cpu().numpy(), best.indices.cpu().numpy()
        return [
            dict(zip(map(str, n), map(float, s), strict=True)) for n, s in zip(names, scores, strict=True)
        ]

    return step


if __name__ == "__main__":
    main(make)
