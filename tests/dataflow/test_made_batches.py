"""Batches that the job's own code makes in the training loop, in steps that torch really runs."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use
from findwall.fixes.host.move_io_off_step import FIX as MOVE_IO
from findwall.fixes.loader.lighter_samples import FIX as LIGHTER
from findwall.fixes.loader.loader_workers import FIX as WORKERS
from sketch import facts_of

WIDE = 48
Make = Callable[["Job", int], torch.Tensor]


class Job:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.photos = (torch.rand(80, 4 * WIDE, 4 * WIDE) * 255).to(torch.uint8)
        self.rows = torch.randn(400, WIDE)
        self.texts = [f"{number} of some words that are hashed one by one" * 80 for number in range(80)]

    def train(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


def photos(job: Job, number: int) -> torch.Tensor:
    rows = []
    for at in range(8):
        photo = job.photos[8 * number + at].float()[None, None] / 255
        rows.append(functional.interpolate(photo, size=WIDE // 2, mode="bilinear").mean((0, 1, 2)).numpy())
    return torch.tensor([[*row, *row] for row in rows])


def texts(job: Job, number: int) -> torch.Tensor:
    rows = []
    for text in job.texts[8 * number : 8 * number + 8]:
        rows.append(torch.tensor([float(zlib.crc32(text[at:].encode()) % 100) for at in range(WIDE)]))
    return torch.stack(rows)


def recorded(make: Make, folder: Path) -> Facts:
    """With its steps as long as they were traced: an estimate without the profiler is of no interest here."""
    job, numbers = Job(), itertools.cycle(range(10))
    found = facts_with_flow(lambda: job.train(make(job, next(numbers))), folder)
    assert found.rank.timeline is not None
    step_ms = float(found.whole.steps.lengths.mean()) / 1e6
    return facts_of(found.rank.timeline, step_ms, device_kind="cpu", observed=found.rank.observed)


@pytest.mark.parametrize("make", [photos, texts])
def test_what_no_weight_flows_into_in_front_of_the_pass_is_the_loaders(make: Make, tmp_path: Path) -> None:
    facts = recorded(make, tmp_path)
    assert facts.by_hand is not None
    first = make.__code__.co_firstlineno
    name, _, line = facts.by_hand.lines[0].rpartition(":")
    assert name.endswith("test_made_batches.py") and first < int(line) <= first + 5
    assert facts.share("loader-starved") > 0.1
    found = LIGHTER.advise(facts)
    assert isinstance(found, Use) and found.claim.id == "lighter-samples/by-hand"
    assert found.places == [facts.by_hand.lines[0]] and found.likely is not None
    assert not isinstance(WORKERS.advise(facts), Use | NoUse)  # there is no loader that could have some
    assert isinstance(MOVE_IO.advise(facts), NoUse)


def acted(job: Job, number: int) -> torch.Tensor:
    """An agent's: what the model says decides what comes next."""
    seen = job.rows[number]
    rows = []
    for _ in range(8):
        with torch.no_grad():
            act = job.model(seen).item()
        seen = torch.tensor([act + at for at in range(WIDE)])
        rows.append(seen)
    return torch.stack(rows)


def drawn(job: Job, number: int) -> torch.Tensor:
    """What is new in every epoch cannot be stored."""
    return torch.stack([torch.randn(WIDE).sin().cos() for _ in range(32)])


def constant(job: Job, number: int) -> torch.Tensor:
    """The same in every step: compute-once says so."""
    mixed = torch.ones(WIDE)
    for at in range(64):
        mixed = mixed * (1.0 + at / 100) - 0.5
    return job.rows[number : number + 1] * mixed


def little(job: Job, number: int) -> torch.Tensor:
    return job.rows[number : number + 1].expand(8192, WIDE)


def judged(job: Job, number: int) -> torch.Tensor:
    """A model that is asked without gradients in every step: nobody knows for what."""
    with torch.no_grad():
        print(end=f"{job.model(photos(job, number)).sum().item():.0f}"[:0])
    return job.rows[number : number + 4]


@pytest.mark.parametrize("make", [acted, drawn, constant, little, judged])
def test_nor_is_what_the_model_draws_or_nothing_decide(make: Make, tmp_path: Path) -> None:
    facts = recorded(make, tmp_path)
    assert facts.by_hand is None
    assert facts.spent_ms("loader-starved") == 0
