"""Metric learning with the triplet loss as the paper says it: for each anchor, in a Python loop.

Truth: overhead / launch-bound. 128 anchors with a dozen ops each, and twice that backward, on vectors of
a few hundred numbers: thousands of kernels with next to nothing in them. One matrix of distances holds
all of it in a dozen ops.
"""

import torch
from fixclock import Step, device_of, main
from torch import nn

WALLS = [["overhead", "launch-bound"]]
ALSO = []
FIXES = ["matrix"]
MARGIN = 0.2


def triplet_loss(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The hardest positive and negative of each anchor."""
    losses = []
    for i in range(len(vectors)):
        distance = (vectors - vectors[i]).square().sum(1)
        same = labels == labels[i]
        positive = torch.where(same, distance, -torch.inf).max()
        negative = torch.where(same, torch.inf, distance).min()
        losses.append(torch.relu(positive - negative + MARGIN))
    return torch.stack(losses).mean()


def triplet_loss_matrix(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    distance = (vectors[:, None] - vectors).square().sum(2)
    same = labels[:, None] == labels
    positive = torch.where(same, distance, -torch.inf).amax(1)
    negative = torch.where(same, torch.inf, distance).amin(1)
    return torch.relu(positive - negative + MARGIN).mean()


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width, depth = (128, 32, 128, 6) if size == "gpu" else (6, 8, 8, 1)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, width))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) // 4
    loss_of = triplet_loss_matrix if fix == "matrix" else triplet_loss

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            vectors = model(images)
        loss_of(nn.functional.normalize(vectors.float()), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make, FIXES, steps=300)
