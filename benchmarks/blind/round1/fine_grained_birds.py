"""Fine-grained classification: ResNet-50 in bf16, channels-last, DataLoader with 4 workers, pinned memory, and an
augmentation somebody wrote in numpy (bilinear random-resized crop, blur, colour jitter, random erase).

Why: an image costs a worker 10 ms or more, four workers give a few hundred images a second, the GPU could take two thousand.
Trap: workers and pinned memory are there, so "the loader is tuned".
Fixes: workers14: 14 workers. light: the crop as a plain slice, the rest on the GPU.
"""

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
FIXES = ["workers14", "light"]
TRUTH_STEPS = 45


class Birds(Dataset):
    def __init__(self, length, side, light):
        rng = np.random.default_rng(0)
        self.store = rng.integers(0, 256, (64, side * 5 // 4, side * 5 // 4, 3), dtype=np.uint8)
        self.length, self.side, self.light = length, side, light

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = self.store[index % len(self.store)]
        label = index % 200
        if self.light:
            y, x = rng.integers(0, image.shape[0] - self.side, 2)
            return torch.from_numpy(image[y : y + self.side, x : x + self.side].copy()), label
        return torch.from_numpy(self.augment(image, rng)), label

    def augment(self, image, rng):
        full, side = image.shape[0], self.side
        crop = int(full * rng.uniform(0.5, 1.0))
        top, left = rng.integers(0, full - crop + 1, 2)
        ys = np.linspace(top, top + crop - 1, side)
        xs = np.linspace(left, left + crop - 1, side)
        y0, x0 = np.floor(ys).astype(int), np.floor(xs).astype(int)
        y1, x1 = np.minimum(y0 + 1, full - 1), np.minimum(x0 + 1, full - 1)
        wy, wx = (ys - y0)[:, None, None].astype(np.float32), (xs - x0)[None, :, None].astype(np.float32)
        picture = image.astype(np.float32) / 255
        out = ((1 - wy) * ((1 - wx) * picture[y0][:, x0] + wx * picture[y0][:, x1])
               + wy * ((1 - wx) * picture[y1][:, x0] + wx * picture[y1][:, x1]))
        if rng.random() < 0.5:
            out = out[:, ::-1]
        kernel = np.array([1, 4, 6, 4, 1], np.float32) / 16
        for axis in (0, 1):
            padded = np.pad(out, [(2, 2) if a == axis else (0, 0) for a in range(3)], mode="edge")
            out = sum(k * np.take(padded, range(i, i + side), axis) for i, k in enumerate(kernel))
        grey = out.mean(-1, keepdims=True)
        out = grey + (out - grey) * rng.uniform(0.6, 1.4)
        out = np.clip(out * rng.uniform(0.6, 1.4), 0, 1) ** rng.uniform(0.8, 1.2)
        y, x = rng.integers(0, side * 3 // 4, 2)
        out[y : y + side // 4, x : x + side // 4] = rng.random((1, 1, 3))
        return np.ascontiguousarray((out.transpose(2, 0, 1) - 0.45) / 0.22, np.float32)


def main():
    args = arguments(160, FIXES)
    if args.gpu:
        import torchvision

        model, side, batch = torchvision.models.resnet50(weights=None, num_classes=200), 224, 64
    else:
        model = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 200))
        side, batch = 64, 4
    model = model.to(args.device, memory_format=torch.channels_last)
    workers = {None: 4, "workers14": 14, "light": 4}[args.fix] if args.gpu else 1
    loader = DataLoader(Birds((args.steps + 1) * batch, side, args.fix == "light"), batch, shuffle=True, num_workers=workers,
                        pin_memory=args.gpu, prefetch_factor=4, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    clock = Clock(args.steps)
    for step, (images, labels) in enumerate(loader):
        if step == args.steps:
            break
        images, labels = images.to(args.device, non_blocking=True), labels.to(args.device, non_blocking=True)
        if args.fix == "light":
            images = (images.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22
        with torch.autocast(args.device.type, torch.bfloat16):
            loss = F.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()
    print(f"loss {loss.item():.3f}")
    clock.report()


if __name__ == "__main__":
    main()
