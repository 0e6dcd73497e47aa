"""Fine-tuning the head of a frozen network on pictures that are augmented in the training loop, in numpy.

Truth: overhead / host-work. No loader: each batch of 32 is cropped, mirrored, brightened and noised by the
thread that trains, picture by picture, before it is sent; the device needs a tenth of that for the
rest. The same on the device, or in a loader's workers, leaves only the training.
"""

import numpy as np
import torch
from fixclock import Step, device_of, main
from torch import nn
from torch.utils.data import DataLoader, Dataset

# Preparing the batch is data work too, though no loader is there to be starved by.
WALLS = [["overhead", "host-work"], ["data", "loader-starved"]]
ALSO = []
FIXES = ["device_augment", "workers"]
EDGE = 32


def augmented(picture: np.ndarray, side: int, dice: np.random.Generator) -> np.ndarray:
    top, left = dice.integers(0, EDGE, 2)
    cut = picture[top : top + side, left : left + side].astype(np.float32) / 255
    if dice.random() < 0.5:
        cut = cut[:, ::-1]
    cut = cut * dice.uniform(0.8, 1.2) + dice.uniform(-0.1, 0.1)
    grey = cut.mean(2, keepdims=True)
    cut = np.clip(grey + (cut - grey) * dice.uniform(0.7, 1.3), 0, 1)
    cut = cut + dice.normal(0, 0.02, cut.shape).astype(np.float32)
    return ((cut - 0.45) / 0.22).transpose(2, 0, 1)


class Augmented(Dataset):
    """The fix: the same work as a dataset, for workers to do."""

    def __init__(self, pictures: np.ndarray, side: int) -> None:
        self.pictures, self.side = pictures, side

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = self.pictures[index % len(self.pictures)]
        made = augmented(picture, self.side, np.random.default_rng(index))
        return torch.from_numpy(np.ascontiguousarray(made, np.float32))


def on_device(pictures: torch.Tensor, side: int) -> torch.Tensor:
    """The fix: crop for the batch, the rest for each picture, on the device."""
    rows, device = len(pictures), pictures.device
    top, left = np.random.randint(0, EDGE, 2)
    cut = pictures[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float() / 255
    one = (rows, 1, 1, 1)
    cut = torch.where(torch.rand(one, device=device) < 0.5, cut.flip(3), cut)
    cut = cut * torch.empty(one, device=device).uniform_(0.8, 1.2)
    cut = cut + torch.empty(one, device=device).uniform_(-0.1, 0.1)
    grey = cut.mean(1, keepdim=True)
    cut = (grey + (cut - grey) * torch.empty(one, device=device).uniform_(0.7, 1.3)).clamp(0, 1)
    return (cut + 0.02 * torch.randn_like(cut) - 0.45) / 0.22


def network(width: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=4), nn.ReLU(inplace=True)]
    for _ in range(6):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, held, workers = (32, 224, 256, 512, 12) if size == "gpu" else (4, 16, 8, 16, 1)
    backbone = network(width).to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    head = nn.Linear(width, 20).to(device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    dice = np.random.default_rng(0)
    pictures = dice.integers(0, 256, (held, side + EDGE, side + EDGE, 3), dtype=np.uint8)
    labels = torch.from_numpy(dice.integers(0, 20, held))
    loader = iter(())
    if fix == "workers":
        ahead = DataLoader(Augmented(pictures, side), batch, num_workers=workers, pin_memory=device == "cuda")
        loader = iter(ahead)

    def batch_of(rows: np.ndarray) -> torch.Tensor:
        if fix == "workers":
            return next(loader).to(device, non_blocking=True)
        if fix == "device_augment":
            return on_device(torch.from_numpy(pictures[rows]).to(device), side)
        made = np.stack([augmented(pictures[row], side, dice) for row in rows])
        return torch.from_numpy(made).float().to(device)

    def step() -> None:
        rows = dice.integers(0, held, batch)
        images = batch_of(rows).to(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(head(backbone(images)), labels[rows].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make, FIXES)
