"""Steps of a small model that torch really trains and traces on the CPU, with something before or after."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from findwall.facts.facts import Facts
from sketch import facts_of
from traced_steps import traced_steps

WIDE, STEPS = 64, 3
Work = Callable[["Trained", int], Any]  # something of a step, in the step of that number


class Trained:
    """A model with layers that have modes, its optimizer and its batches: the small one is trained on."""

    def __init__(self, norms: bool = True) -> None:
        torch.manual_seed(0)
        modes = [nn.BatchNorm1d(WIDE), nn.Dropout(0.1)] if norms else []
        self.model = nn.Sequential(nn.Linear(WIDE, WIDE), *modes, nn.ReLU(), nn.Linear(WIDE, WIDE))
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters())
        self.batch, self.many = torch.randn(32, WIDE), torch.randn(16384, WIDE)
        self.other = nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.ReLU(), nn.Linear(2 * WIDE, WIDE))
        self.average = copy.deepcopy(self.model)

    def forward(self) -> torch.Tensor:
        out: torch.Tensor = self.model(self.batch)
        return out


def nothing(job: Trained, number: int) -> None: ...


def recorded(
    path: Path,
    before: Work = nothing,
    after: Work = nothing,
    forward: Callable[[Trained], torch.Tensor] = Trained.forward,
    trained: Trained | None = None,
    trains: bool = True,
    **options: Any,
) -> Facts:
    """Three steps, after one that is not recorded."""
    job = trained or Trained()

    def step(number: int) -> None:
        before(job, number)
        if trains:
            job.optimizer.zero_grad()
            nn.functional.mse_loss(forward(job), job.batch).backward()
            nn.utils.clip_grad_norm_(job.model.parameters(), 1.0)
            job.optimizer.step()
        after(job, number)

    step(0)
    return facts_of(traced_steps(step, path, STEPS, **options), device_kind="cpu")
