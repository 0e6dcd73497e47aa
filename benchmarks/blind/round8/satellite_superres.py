"""Fourfold super-resolution of four-band satellite crops, trained with Accelerate in bf16.

Crops are cut from a pool of scenes; the low-resolution input is simulated from each crop (optics blur with a
random width, sensor sampling, shot and read noise).
"""

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
FIXES = {
    "workers": "14 loader workers in place of 4",
    "device_sensor": "the workers hand over raw crops; blur, sampling and noise are simulated on the device",
}
TRUTH_STEPS = 36
BANDS, SCALE, TAPS = 4, 4, 15


class Crops(Dataset):
    def __init__(self, count, crop, raw):
        rng = np.random.default_rng(0)
        self.scenes = rng.integers(0, 255, (24, BANDS, 512, 512), dtype=np.uint8)
        self.count, self.crop, self.raw = count, crop, raw

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        top, left = rng.integers(0, 512 - self.crop, 2)
        scene = self.scenes[rng.integers(len(self.scenes))]
        patch = scene[:, top : top + self.crop, left : left + self.crop]
        if self.raw:
            return torch.from_numpy(patch.copy())
        sharp = patch.astype(np.float32) / 255.0
        low = self.sensor(sharp, rng)
        return torch.from_numpy(low), torch.from_numpy(sharp)

    def sensor(self, sharp, rng):
        at = np.arange(TAPS) - TAPS // 2
        taps = np.exp(-0.5 * (at / rng.uniform(1.5, 3.0)) ** 2)
        taps = (taps / taps.sum()).astype(np.float32)
        half = TAPS // 2
        padded = np.pad(sharp, ((0, 0), (half, half), (half, half)), mode="reflect")
        rows = sum(w * padded[:, i : i + self.crop, :] for i, w in enumerate(taps))
        blurred = sum(w * rows[:, :, i : i + self.crop] for i, w in enumerate(taps))
        shot = np.sqrt(np.maximum(blurred, 0) / 400.0) * rng.standard_normal(blurred.shape, dtype=np.float32)
        noisy = blurred + shot + 0.01 * rng.standard_normal(blurred.shape, dtype=np.float32)
        size = self.crop // SCALE
        low = noisy.reshape(BANDS, size, SCALE, size, SCALE).mean((2, 4))
        return low.astype(np.float32)


def device_sensor(crops):
    sharp = crops.float() / 255.0
    at = torch.arange(TAPS, device=crops.device) - TAPS // 2
    width = torch.empty(len(crops), 1, device=crops.device).uniform_(1.5, 3.0)
    taps = torch.exp(-0.5 * (at / width) ** 2)
    taps = (taps / taps.sum(1, keepdim=True)).repeat_interleave(BANDS, 0)
    n, c, h, w = sharp.shape
    padded = F.pad(sharp, (TAPS // 2,) * 4, mode="reflect").reshape(1, n * c, h + TAPS - 1, w + TAPS - 1)
    rows = F.conv2d(padded, taps.reshape(n * c, 1, TAPS, 1), groups=n * c)
    blurred = F.conv2d(rows, taps.reshape(n * c, 1, 1, TAPS), groups=n * c).reshape(n, c, h, w)
    shot = (blurred.clamp_min(0) / 400.0).sqrt() * torch.randn_like(blurred)
    return F.avg_pool2d(blurred + shot + 0.01 * torch.randn_like(blurred), SCALE), sharp


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.second(F.relu(self.first(x)))


def network(width, blocks):
    return nn.Sequential(
        nn.Conv2d(BANDS, width, 3, padding=1),
        *[Residual(width) for _ in range(blocks)],
        nn.Conv2d(width, BANDS * SCALE**2, 3, padding=1),
        nn.PixelShuffle(SCALE),
    )


def main():
    args = arguments(200, list(FIXES))
    crop, batch, width, blocks = (256, 32, 64, 12) if args.gpu else (64, 4, 8, 2)
    workers = (14 if args.fix == "workers" else 4) if args.gpu else 1
    raw = args.fix == "device_sensor"
    accelerator = Accelerator(mixed_precision="bf16" if args.gpu else "no", cpu=not args.gpu)
    loader = DataLoader(Crops(args.steps * batch, crop, raw), batch, num_workers=workers, pin_memory=args.gpu)
    model = network(width, blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=args.gpu)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    clock = Clock(args.steps)
    for item in loader:
        low, sharp = device_sensor(item) if raw else item
        loss = F.l1_loss(model(low), sharp)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
