"""Trains a 133-point whole-body pose network: the loader crops and flips people and draws a Gaussian per joint."""

import numpy as np
import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

FIXES = ["device-heatmaps", "more-workers"]
STEPS = 45
SIGMA, STRIDE = 2.0, 4


class People(Dataset):
    """Uint8 crops with joints in pixels and a visibility flag for each."""

    def __init__(self, pool, size, joints, with_heatmaps, seed=3):
        rng = np.random.default_rng(seed)
        self.height, self.width = size
        self.images = rng.integers(0, 256, (pool, 3, *size), dtype=np.uint8)
        self.joints = (rng.random((pool, joints, 2)) * [self.width - 1, self.height - 1]).astype(np.float32)
        self.visible = (rng.random((pool, joints)) < 0.8).astype(np.float32)
        self.with_heatmaps = with_heatmaps

    def __len__(self):
        return len(self.images)

    def heatmaps(self, joints):
        rows, columns = self.height // STRIDE, self.width // STRIDE
        ys, xs = np.mgrid[:rows, :columns].astype(np.float32)
        maps = np.zeros((len(joints), rows, columns), dtype=np.float32)
        for k, (x, y) in enumerate(joints):
            maps[k] = np.exp(-((xs - x / STRIDE) ** 2 + (ys - y / STRIDE) ** 2) / (2 * SIGMA**2))
        return maps

    def __getitem__(self, key):
        index, flip = key
        image, joints = self.images[index], self.joints[index]
        if flip:
            image = np.ascontiguousarray(image[:, :, ::-1])
            joints = np.stack([self.width - 1 - joints[:, 0], joints[:, 1]], 1)
        target = self.heatmaps(joints) if self.with_heatmaps else joints
        return torch.from_numpy(image), torch.from_numpy(target), torch.from_numpy(self.visible[index])


class Draws(Sampler):
    """Index and flip of every sample, so that workers need no random state of their own."""

    def __init__(self, pool, count, seed=3):
        rng = np.random.default_rng(seed)
        self.keys = list(zip(rng.integers(0, pool, count).tolist(), (rng.random(count) < 0.5).tolist()))

    def __iter__(self):
        return iter(self.keys)

    def __len__(self):
        return len(self.keys)


def render(joints, rows, columns):
    """The same Gaussians on the device, as the product of one over rows and one over columns."""
    xs, ys = torch.arange(columns, device=joints.device), torch.arange(rows, device=joints.device)
    along_x = torch.exp(-((xs - joints[..., :1] / STRIDE) ** 2) / (2 * SIGMA**2))
    along_y = torch.exp(-((ys - joints[..., 1:] / STRIDE) ** 2) / (2 * SIGMA**2))
    return along_y[..., None] * along_x[..., None, :]


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.norm2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.skip = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class PoseNet(nn.Module):
    def __init__(self, width, joints):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(*[
            nn.Sequential(Residual(a, b, 1 if a == b else 2), Residual(b, b, 1)) for a, b in zip(widths, widths[1:])
        ])
        ups = [widths[-1], 4 * width, 4 * width, 4 * width]
        self.up = nn.Sequential(*[
            nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in zip(ups, ups[1:])
        ])
        self.head = nn.Conv2d(ups[-1], joints, 1)

    def forward(self, x):
        return self.head(self.up(self.stages(self.stem(x))))


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(3)
    pool, size, joints, batch, width, workers = (600, (256, 192), 133, 64, 64, 8) if args.gpu else (20, (64, 64), 9, 4, 8, 2)
    if args.fix == "more-workers":
        workers = 14 if args.gpu else 3
    on_device = args.fix == "device-heatmaps"
    people = People(pool, size, joints, with_heatmaps=not on_device)
    loader = DataLoader(people, batch_size=batch, sampler=Draws(pool, batch * args.steps), num_workers=workers,
                        pin_memory=args.gpu, persistent_workers=True, prefetch_factor=2)

    model = PoseNet(width, joints).to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=args.gpu)
    clock = Clock(args.steps)
    for images, target, visible in loader:
        images, target, visible = (t.to(args.device, non_blocking=True) for t in (images, target, visible))
        if on_device:
            target = render(target, size[0] // STRIDE, size[1] // STRIDE)
        images = (images.float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
        with torch.autocast(args.device.type, torch.bfloat16, enabled=args.gpu):
            maps = model(images)
        error = F.mse_loss(maps.float(), target, reduction="none").mean((2, 3))
        loss = (error * visible).sum() / visible.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
