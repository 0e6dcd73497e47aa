"""What the source of a line tells: a routine that it calls, and whether a loop within the step holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.agent.timing.line_source import MOST_BYTES, forget, is_looped, routine_at

JOB = """\
import random
import numpy as np
from numpy.random import permutation as shuffled
rng = np.random.default_rng(0)
def overlap(a, b):
    return a * b
def train(model, data):
    for step in range(10):
        picked = np.random.choice(
            640_000, 1024, replace=False)
        order = shuffled(10)
        some = rng.choice(10)
        edges = np.sort(data)
        text = "".join(data)
        for row in data:
            overlap(row, row)
        pairs = [overlap(a, a) for a in data]
        model(picked).backward()
"""


def at(text: str) -> int:
    return next(number for number, line in enumerate(JOB.splitlines(), 1) if text in line)


@pytest.fixture
def job(tmp_path: Path) -> str:
    forget()
    file = tmp_path / "job.py"
    file.write_text(JOB)
    return str(file)


@pytest.mark.parametrize(
    ("line", "routine"),
    [
        ("np.random.choice", "numpy.random.choice"),
        ("640_000", "numpy.random.choice"),  # of several lines
        ("order =", "numpy.random.permutation"),
        ("rng.choice", "numpy.random.default_rng.choice"),
        ("np.sort", "numpy.sort"),
        ("text =", ""),
        ("overlap(row", ""),
    ],
)
def test_the_routine_that_a_line_calls(job: str, line: str, routine: str) -> None:
    assert routine_at(job, at(line)) == routine


@pytest.mark.parametrize(
    ("lines", "looped"),
    [
        (["np.random.choice"], False),  # in the loop over the steps alone
        (["overlap(row"], True),
        (["return a * b", "overlap(row"], True),  # a loop calls the function
        (["return a * b", "pairs ="], True),
        (["return a * b", "text ="], False),
    ],
)
def test_loops_within_the_step(job: str, lines: list[str], looped: bool) -> None:
    assert is_looped([(job, at(line)) for line in lines]) is looped


def test_without_a_text_nobody_knows(tmp_path: Path) -> None:
    broken, large = tmp_path / "broken.py", tmp_path / "large.py"
    broken.write_text("for (")
    large.write_text("#" * (MOST_BYTES + 1))
    for file in (str(tmp_path / "missing.py"), str(broken), str(large), "<stdin>"):
        assert routine_at(file, 1) == "" and is_looped([(file, 1)]) is None
    assert is_looped([]) is None
