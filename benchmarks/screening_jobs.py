"""Training jobs that `screening.py` screens and proves fixes on: each has another wall.

    python benchmarks/screening_jobs.py NAME --device cpu|cuda

Sizes are for steps of a few tens of milliseconds on one core, or of a few on a GPU. Those called `planted`
wait in place of computing, each fix by so much less: what it is worth is known, whatever else runs.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

STEPS = 1_000_000  # whoever measures ends it


def mlp(wide: int) -> nn.Module:
    return nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(wide, wide), nn.GELU())))


class Attention(nn.Module):
    """Written out, as many scripts do."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(wide), nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return x + self.out(scores @ v)


Job = tuple[nn.Module, torch.optim.Optimizer, tuple[int, ...]]


def matmuls(big: bool) -> Job:
    model = mlp(4096 if big else 512)
    return model, torch.optim.SGD(model.parameters(), 1e-4), (2048 if big else 64, 4096 if big else 512)


def many_tensors(big: bool) -> Job:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(120 if big else 60)))
    return model, torch.optim.AdamW(model.parameters(), 1e-5, foreach=False), (32, 64)


def large_update(big: bool) -> Job:
    wide = 4096 if big else 1024
    model = nn.Sequential(nn.Linear(wide, wide), nn.Linear(wide, wide))
    return model, torch.optim.AdamW(model.parameters(), 1e-5), (16, wide)


def attention(big: bool) -> Job:
    wide = 512 if big else 128
    model = nn.Sequential(*(Attention(wide) for _ in range(4)))
    return model, torch.optim.Adam(model.parameters(), 1e-5), (16 if big else 4, 512 if big else 128, wide)


def images(big: bool) -> Job:
    parts = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU()]
    model = nn.Sequential(*parts, nn.Conv2d(64, 64, 3, 2), nn.ReLU())
    return model, torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9), (64 if big else 4, 3, 64, 64)


def pointwise(big: bool) -> Job:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1024))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(6):
                x = torch.sin(x) * self.scale + 0.1 * x.tanh()
            return x

    model = Chain()
    return model, torch.optim.NAdam(model.parameters(), 1e-4), (8192 if big else 256, 1024)


JOBS: dict[str, Callable[[bool], Job]] = {
    one.__name__: one for one in (matmuls, many_tensors, large_update, attention, images, pointwise)
}
WAIT_S = 0.02
RARE = 10_000  # new objects between two collections: Python's own number is far below
# Of the planted ones: by how much each fix makes the wait shorter; the others change nothing.
PLANTED: dict[str, dict[str, float]] = {
    "planted_none": {},
    "planted_autocast": {"bf16-autocast": 1.6, "freeze-gc": 1.03},
    "planted_update": {"fused-optimizer": 1.25, "bf16-autocast": 0.8},
    "planted_threads": {"more-threads": 1.4, "fused-optimizer": 1.06},
    "planted_cache": {"keep-cache": 1.15, "more-threads": 0.9},
    "planted_all": {"bf16-autocast": 1.1, "fused-optimizer": 1.1, "freeze-gc": 1.1, "keep-cache": 0.93},
}


def wait(fixes: dict[str, float], optimizer: torch.optim.Optimizer, cached: Callable[[], bool]) -> None:
    """As long as a device would take with what is made just now."""
    is_made = {
        "bf16-autocast": torch.is_autocast_enabled("cpu"),
        "fused-optimizer": bool(optimizer.param_groups[0].get("fused")),
        "freeze-gc": gc.get_threshold()[0] > RARE,
        "more-threads": torch.get_num_threads() > 1,
        "keep-cache": not cached(),
    }
    shorter = math.prod(times for name, times in fixes.items() if is_made[name])
    time.sleep(WAIT_S / shorter)


def planted(name: str) -> None:
    """On the CPU alone. The cache is given away in every step, and by whether it was the wait goes."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    given: list[bool] = []
    torch.cuda.empty_cache = lambda: given.append(True)
    fixes = PLANTED[name]

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wait(fixes, optimizer, lambda: bool(given))
            return self.model(x)

    waits = Waits()
    for x in batches((4, 4), "cpu"):
        given.clear()
        torch.cuda.empty_cache()
        optimizer.zero_grad()
        waits(x).square().mean().backward()
        optimizer.step()


# What some of them do in every step besides, and whose model they have.
BESIDE: dict[str, Callable[[torch.Tensor], object]] = {
    "collects": lambda _loss: gc.collect(),
    "clears_cache": lambda _loss: torch.cuda.empty_cache(),
    "reads_loss": lambda loss: loss.item(),
}
HAVE = {"collects": "attention", "clears_cache": "images", "reads_loss": "many_tensors"}


def names() -> list[str]:
    return [*JOBS, *HAVE, *PLANTED]


def batches(shape: tuple[int, ...], device: str) -> Iterator[Any]:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randn(shape, generator=generator).to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=names())
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if args.name in PLANTED:
        planted(args.name)
    model, optimizer, shape = JOBS[HAVE.get(args.name, args.name)](args.device == "cuda")
    model.to(args.device)
    beside = BESIDE.get(args.name)
    for step, x in enumerate(batches(shape, args.device)):
        if step == STEPS:
            break
        loss = (model(x) - 1.0).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if beside is not None:
            beside(loss.detach())


if __name__ == "__main__":
    main()
