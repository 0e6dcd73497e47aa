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

import torch
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

from findwall.measure.samples import Samples


class Rows(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, at):
        return DRAWN


torch.manual_seed(SEED)
samples = Samples(torch)
for loader in LOADERS:
    for batch in loader:
        pass
import json
print(json.dumps([samples.draws, samples.order]))
"""


def watched(
    folder: Path, drawn: str = "at", loaders: str = "[DataLoader(Rows(), 4, shuffle=True)]", seed: int = 0
) -> tuple[bool, list[list[int]]]:
    script = folder / "job.py"
    script.write_text(JOB.replace("DRAWN", drawn).replace("LOADERS", loaders).replace("SEED", str(seed)))
    done = subprocess.run(
        warm.command(str(script)), capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    draws, order = json.loads(done.stdout.splitlines()[-1])
    return draws, order


@pytest.mark.parametrize(
    ("drawn", "draws"), [("at", False), ("torch.rand(1)", True), ("random.random()", True)]
)
def test_a_dataset_draws_or_it_does_not(tmp_path: Path, drawn: str, draws: bool) -> None:
    assert watched(tmp_path, drawn)[0] is draws


def test_what_a_sampler_draws_is_no_dataset_that_draws(tmp_path: Path) -> None:
    assert not watched(tmp_path, loaders="[DataLoader(Rows(), 4, sampler=SubsetRandomSampler(range(40)))]")[0]


def test_the_order_is_the_samples_own_whoever_makes_them(tmp_path: Path) -> None:
    _, order = watched(tmp_path)
    assert len(order) == 1 and len(order[0]) == 10 and len(set(order[0])) == 10
    both = "[DataLoader(Rows(), 4, shuffle=True, num_workers=2), DataLoader(Rows(), 8)]"
    _, beside = watched(tmp_path, loaders=both)
    assert beside[0] == order[0] and len(beside[1]) == 5
    assert watched(tmp_path, seed=1)[1] != order
