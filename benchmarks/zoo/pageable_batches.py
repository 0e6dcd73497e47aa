"""Training on batches in ordinary (pageable) host memory, copied with a blocking `.to(device)`.

Truth: data / copy-exposed. 150 MB a step through a bounce buffer at about 9 GB/s, and nothing runs
on the device meanwhile. Pinned memory and a non-blocking copy are several times faster; resident
batches have no copy at all.
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["data", "copy-exposed"]]
ALSO = []
FIXES = ["pinned", "resident"]


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width = (256, 224, 64) if size == "gpu" else (4, 16, 8)
    convs: list[nn.Module] = [nn.Conv2d(3, width, 8, stride=8)]
    for _ in range(3):
        convs += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
    model = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.rand(batch, 3, side, side) for _ in range(4)]
    if device == "cuda" and fix is not None:
        batches = [b.pin_memory() if fix == "pinned" else b.to(device) for b in batches]
    labels = torch.randint(1000, (batch,), device=device)
    number = 0

    def step() -> None:
        nonlocal number
        images = batches[number % len(batches)].to(device, non_blocking=fix == "pinned")
        number += 1
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
