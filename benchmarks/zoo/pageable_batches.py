"""Training on batches in ordinary (pageable) host memory, copied with a blocking `.to(device)`.

Truth: data / copy-exposed. 150 MB a step through a bounce buffer at about 9 GB/s, and nothing runs
on the device meanwhile. Pinned memory and a non-blocking copy are several times faster; resident
batches have no copy at all.
"""

from collections.abc import Iterator

import torch
from changes import compiled
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["data", "copy-exposed"]]
ALSO = []
FIXES = ["pinned", "pin", "non_blocking", "prefetch", "resident", "channels_last", "compile"]
PINNED = ("pinned", "pin", "prefetch")


def ahead(batches: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Each batch is copied on a stream of its own while the one before is trained on."""
    side = torch.cuda.Stream()
    coming: torch.Tensor | None = None
    number = 0
    while True:
        torch.cuda.current_stream().wait_stream(side)
        now = coming
        with torch.cuda.stream(side):
            coming = batches[number % len(batches)].to("cuda", non_blocking=True)
        number += 1
        if now is not None:
            now.record_stream(torch.cuda.current_stream())
            yield now


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, side, width = (256, 224, 64) if size == "gpu" else (4, 16, 8)
    convs: list[nn.Module] = [nn.Conv2d(3, width, 8, stride=8)]
    for _ in range(3):
        convs += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
    model = nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.rand(batch, 3, side, side) for _ in range(4)]
    if device == "cuda" and fix in PINNED:
        batches = [b.pin_memory() for b in batches]
    elif fix == "resident":
        batches = [b.to(device) for b in batches]
    if fix == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    run = compiled(model, fix)
    waiting = ahead(batches) if device == "cuda" and fix == "prefetch" else None
    labels = torch.randint(1000, (batch,), device=device)
    number = 0

    def step() -> None:
        nonlocal number
        if waiting is not None:
            images = next(waiting)
        else:
            images = batches[number % len(batches)].to(device, non_blocking=fix in ("pinned", "non_blocking"))
        number += 1
        if fix == "channels_last":
            images = images.to(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main(make)
