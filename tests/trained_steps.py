"""Steps of a small model that torch really trains and traces on the CPU, with something before or after."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from findwall.facts.facts import Facts
from findwall.readers import read_trace
from sketch import facts_of

WIDE, STEPS = 64, 3
RECORDINGS = 6  # at most, of the same steps
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
    """Three steps, after one that is not recorded. Where others disturbed one of them, which then counts as
    warm-up, they are recorded again a little later."""
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
    for attempt in range(RECORDINGS):
        with torch.profiler.profile(record_shapes=True, **options) as profiler:
            for number in range(STEPS):
                with torch.profiler.record_function(f"ProfilerStep#{number}"):
                    step(number)
        profiler.export_chrome_trace(str(path / "trace.json"))
        facts = facts_of(read_trace(path / "trace.json"), device_kind="cpu")
        if not facts.whole.cold_ms:
            break
        time.sleep(0.1 * attempt)
    return facts
