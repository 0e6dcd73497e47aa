"""What a loader asks for, and whether its dataset draws: in a real loader, with and without workers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import warm

JOB = """
import random

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

from findwall.agent.trial_arm.samples import Samples


class Flip:
    own = None

    def __init__(self, own):
        self.own = own

    def __call__(self, at):
        return self.own.random() if self.own is not None else at


class Rows(Dataset):
    def __init__(self, own=None):
        self.transforms = [Flip(own)]

    def __len__(self):
        return 40

    def __getitem__(self, at):
        at = self.transforms[0](at)
        return DRAWN


class Stream(IterableDataset):
    def __iter__(self):
        return iter([DRAWN for at in range(40)])


class Clear(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, at):
        return at


if __name__ == "__main__":
    torch.manual_seed(SEED)
    samples = Samples(torch)
    for loader in LOADERS:
        for batch in loader:
            pass
    import json
    print(json.dumps([samples.draws, samples.unseen, samples.order]))
"""


def watched(
    folder: Path, drawn: str = "at", loaders: str = "[DataLoader(Rows(), 4, shuffle=True)]", seed: int = 0
) -> tuple[bool, bool, list[list[int]]]:
    draws, unseen, order = json.loads(ran(folder, JOB.replace("SEED", str(seed)), drawn, loaders)[-1])
    return draws, unseen, order


def ran(folder: Path, job: str, drawn: str, loaders: str) -> list[str]:
    """The lines that it prints."""
    script = folder / "job.py"
    script.write_text(job.replace("DRAWN", drawn).replace("LOADERS", loaders))
    done = subprocess.run(
        warm.command(str(script)), capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


DRAWS = [
    ("at", False),
    ("torch.rand(1)", True),
    ("random.random()", True),
    ("numpy.random.rand()", True),
    ("torch.rand(1, generator=torch.Generator().manual_seed(at))", False),
]


@pytest.mark.parametrize(("drawn", "draws"), DRAWS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_draws_or_it_does_not(tmp_path: Path, drawn: str, draws: bool, workers: int) -> None:
    loaders = f"[DataLoader(Rows(), 4, num_workers={workers})]"
    assert watched(tmp_path, drawn, loaders)[:2] == (draws, False)


@pytest.mark.parametrize(("drawn", "draws"), DRAWS[:2])
@pytest.mark.parametrize(
    "loaders",
    [
        "[DataLoader(Rows(), 4, num_workers=2, persistent_workers=True)] * 2",
        "[DataLoader(Stream(), 4, num_workers=1)]",
        "[DataLoader(Clear(), 4, num_workers=2), DataLoader(Clear(), 4), DataLoader(Rows(), 4)]",
    ],
)
def test_it_is_seen_whoever_makes_the_samples(tmp_path: Path, drawn: str, draws: bool, loaders: str) -> None:
    """And whatever was gone through before."""
    assert watched(tmp_path, drawn, loaders)[:2] == (draws, False)


@pytest.mark.parametrize(
    "own", ["random.Random(0)", "numpy.random.default_rng(0)", "numpy.random.RandomState(0)"]
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_draws_from_a_generator_of_its_own(tmp_path: Path, own: str, workers: int) -> None:
    assert watched(tmp_path, loaders=f"[DataLoader(Rows({own}), 4, num_workers={workers})]")[0]


def test_in_workers_that_are_not_forked_nobody_sees_it(tmp_path: Path) -> None:
    spawned = "[DataLoader(Rows(), 20, num_workers=1, multiprocessing_context='spawn')]"
    assert watched(tmp_path, "torch.rand(1)", spawned)[:2] == (False, True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_look_changes_no_random_numbers(tmp_path: Path, workers: int) -> None:
    """What workers and the training process draw, then and after it, is the same without it."""
    drawn = "(random.random(), torch.rand(1).item(), numpy.random.rand())"
    loaders = f"[DataLoader(Rows(), 4, num_workers={workers})] * 2"
    seeded = JOB.replace(
        "torch.manual_seed(SEED)", "[one(3) for one in (torch.manual_seed, random.seed, numpy.random.seed)]"
    )
    told = (
        seeded.replace("pass", "print(batch)")
        + "    print(torch.rand(1), random.random(), numpy.random.rand())\n"
    )
    without = told.replace("Samples(torch)", "type('', (), {'draws': 1, 'unseen': 0, 'order': 0})")
    said = [ran(tmp_path, job, drawn, loaders) for job in (told, without)]
    assert [line for line in said[0] if line[0] != "["] == [line for line in said[1] if line[0] != "["]


def test_what_a_sampler_draws_is_no_dataset_that_draws(tmp_path: Path) -> None:
    assert not watched(tmp_path, loaders="[DataLoader(Rows(), 4, sampler=SubsetRandomSampler(range(40)))]")[0]


def test_the_order_is_the_samples_own_whoever_makes_them(tmp_path: Path) -> None:
    *_, order = watched(tmp_path)
    assert len(order) == 1 and len(order[0]) == 10 and len(set(order[0])) == 10
    both = "[DataLoader(Rows(), 4, shuffle=True, num_workers=2), DataLoader(Rows(), 8)]"
    *_, beside = watched(tmp_path, loaders=both)
    assert beside[0] == order[0] and len(beside[1]) == 5
    assert watched(tmp_path, seed=1)[2] != order
