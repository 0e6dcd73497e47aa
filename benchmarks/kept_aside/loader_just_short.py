"""Training from a DataLoader of four workers with pinned memory and non-blocking copies: all as the
guides say, and yet the workers make a batch a little more slowly than the device uses it.

Truth: the device first, the loader just beyond it. Each sample is cropped, flipped, colour-jittered and
blurred in numpy; once the batches made ahead are used up, `next` waits now and then, about 4 percent of
the step on average and unevenly. Without that wait the step is the device's 36 ms of TF32 convolutions,
BatchNorm and layout copies. A profiler's start gives the workers time to make batches ahead: both
traces have a long `next` (8 and 67 ms), and in both the device is kept busy by the queue meanwhile.

Fixes: workers8: eight workers. resident: one batch kept on the host in pinned memory, no loader (the
copy stays).
"""

import numpy as np
import torch
from stepclock import Step, device_of, main
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["compute", "at-the-roof"], ["bandwidth", "layout-copies"], ["data", "loader-starved"]]
ALSO = [["data", "loader-starved"]]
FIXES = ["workers8", "resident"]
INTERLEAVE = False  # a loader that rests between blocks has batches ready when the next block starts
SETTLE = 60
SETTLED_TRACE = 60  # a second trace, with so many steps between the profiler's start and the recorded ones


class Photos(Dataset):
    def __init__(self, side: int) -> None:
        dice = np.random.default_rng(0)
        self.side = side
        self.raw = dice.integers(0, 256, (32, side + 32, side + 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        dice = np.random.default_rng(index)
        top, left = dice.integers(0, 32, 2)
        image = self.raw[index % 32, top : top + self.side, left : left + self.side]
        if dice.random() < 0.5:
            image = image[:, ::-1]
        image = image.astype(np.float32) / 255.0
        image = image @ (np.eye(3) + dice.normal(0, 0.05, (3, 3))).astype(np.float32)
        blurred = image.copy()
        blurred[1:-1] = (image[:-2] + 2 * image[1:-1] + image[2:]) / 4
        blurred[:, 1:-1] = (blurred[:, :-2] + 2 * blurred[:, 1:-1] + blurred[:, 2:]) / 4
        image = (blurred - 0.45) / 0.225
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), index % 1000


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, workers = (64, 224, 256, 4) if size == "gpu" else (2, 32, 8, 2)
    workers = 8 if fix == "workers8" else workers
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=4), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    for _ in range(8):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
    data = DataLoader(Photos(side), batch, num_workers=workers, pin_memory=device == "cuda")
    loader = iter(data)
    kept = next(loader)
    if fix == "resident":
        loader = iter(())

    def step() -> None:
        images, labels = kept if fix == "resident" else next(loader)
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make, steps=60)
