"""A classifier on a small dataset: an epoch is 16 batches, and each starts four spawned workers anew.

Truth: data / loader-starved. A spawned worker is a new Python that imports torch before it makes its
first batch: seconds, once in 16 steps, in which the loop stands in the loader. Between epochs the
workers keep up easily. persistent_workers=True starts them once.
"""

import itertools

import torch
from fixclock import Clock, arguments, device_of
from torch import nn
from torch.utils.data import DataLoader, Dataset

WALLS = [["data", "loader-starved"]]
ALSO = []
FIXES = ["persistent", "resident"]
PERIOD = 16


class Leaves(Dataset):
    """Small pictures of leaves, shifted and mirrored."""

    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        dice = torch.Generator().manual_seed(index)
        picture = torch.rand(3, self.side, self.side, generator=dice)
        shift = int(torch.randint(self.side, (1,)))
        return (picture.roll(shift, 2).flip(2) - 0.5) * 2, index % 102


def network(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 102))


def main() -> None:
    chosen = arguments(FIXES, steps=160)
    device = device_of(chosen.size)
    batch, side, width, workers = (64, 64, 128, 4) if chosen.size == "gpu" else (4, 16, 8, 2)
    torch.manual_seed(0)
    model = network(width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    loader = DataLoader(
        Leaves(PERIOD * batch, side),
        batch,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context="spawn",
        persistent_workers=chosen.fix == "persistent",
        pin_memory=device == "cuda",
    )
    batches = [[t.to(device) for t in one] for one in loader] if chosen.fix == "resident" else loader
    clock = Clock(chosen, PERIOD, PERIOD)
    for _epoch in itertools.count():
        for images, labels in batches:
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.done():
                return


if __name__ == "__main__":
    main()
