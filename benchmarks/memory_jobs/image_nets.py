"""Jobs of convolutions: a residual classifier and a net that goes down and up again."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from memory_jobs.training import Job, Run


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.one(x)))
        return torch.relu(x + self.norm2(self.two(y)))


class Classifier(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        width = 48 * run.wide
        self.first, self.last = nn.Conv2d(3, width, 3, stride=2, padding=1), nn.Linear(width, 100)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for block in self.blocks:
            x = self.run.block(block, x)
        return self.last(x.mean((2, 3)))


def stage(inside: int, out: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, padding=1),
        nn.GroupNorm(8, out),
        nn.SiLU(),
        nn.Conv2d(out, out, 3, padding=1),
        nn.GroupNorm(8, out),
        nn.SiLU(),
    )


class DownAndUp(nn.Module):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        widths = (24 * run.wide, 48 * run.wide, 96 * run.wide)
        self.down = nn.ModuleList(stage(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(stage(a + b, a) for a, b in pairwise(widths))
        self.last = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for at, block in enumerate(self.down):
            x = self.run.block(block, x if at == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for at in reversed(range(len(self.up))):
            wide = functional.interpolate(x, scale_factor=2.0)
            x = self.run.block(self.up[at], torch.cat([wide, kept[at]], 1))
        return self.last(x)


JOBS = {
    "classifier": Job(
        lambda run: [Classifier(run)],
        lambda count, _: [torch.randn(count, 3, 48, 48), torch.randint(100, (count,))],
        lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]),
        batch=(16, 256),
    ),
    "unet": Job(
        lambda run: [DownAndUp(run)],
        lambda count, _: [torch.randn(count, 3, 64, 64), torch.randn(count, 3, 64, 64)],
        lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]),
        batch=(8, 64),
    ),
}
