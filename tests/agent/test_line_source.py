"""What the source of a line tells: a routine that it calls, and whether a loop within the step holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.agent.timing.line_source import MOST_BYTES, Stand, comes_once, forget, is_looped, routine_at

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
    assert is_looped([Stand(job, at(line)) for line in lines]) is looped


def test_without_a_text_nobody_knows(tmp_path: Path) -> None:
    broken, large = tmp_path / "broken.py", tmp_path / "large.py"
    broken.write_text("for (")
    large.write_text("#" * (MOST_BYTES + 1))
    for file in (str(tmp_path / "missing.py"), str(broken), str(large), "<stdin>"):
        assert routine_at(file, 1) == "" and is_looped([Stand(file, 1)]) is None
    assert is_looped([]) is None


SERVICE = """\
def draw(memory):
    return memory.choice(1000)
def learn(model, batch):
    for part in batch:
        model(part)
    model.backward()
    model.step()
def parse(text):
    return text.split()
def main(memory, model, texts):
    for step in range(100):
        batch = draw(memory)
        rows = list(map(parse, texts))
        for text in texts:
            row = parse(text)
        learn(model, batch)
    report(memory)
main(1, 2, 3)
"""


@pytest.fixture
def service(tmp_path: Path) -> str:
    forget()
    file = tmp_path / "service.py"
    file.write_text(SERVICE)
    return str(file)


@pytest.mark.parametrize(
    ("way", "looped", "once"),
    [
        ([("memory.choice", "draw"), ("draw(memory)$", "main")], False, True),
        ([("draw(memory)$", "main")], False, True),  # the line that calls it is as often there
        ([("text.split", "parse"), ("map(parse", "main")], False, None),  # called, but not by its name
        ([("text.split", "parse"), ("row = parse", "main")], True, False),
        ([("model(part)", "learn"), ("learn(model, batch)$", "main")], True, False),
        ([("model.backward", "learn"), ("learn(model, batch)$", "main")], False, True),
        ([("report(memory)", "main")], False, None),  # behind the steps
        ([("text.split", "parse")], False, None),  # nobody knows what called it
    ],
)
def test_lines_that_a_step_comes_to_once(
    service: str, way: list[tuple[str, str]], looped: bool, once: bool | None
) -> None:
    def on(text: str, function: str) -> Stand:
        lines = enumerate(SERVICE.splitlines(), 1)
        whole, text = text.endswith("$"), text.removesuffix("$")
        found = [at for at, line in lines if (line.endswith(text) if whole else text in line)]
        return Stand(service, found[-1], function)

    ends = [on("model.step", "learn"), on("learn(model, batch)$", "main"), on("main(1", "<module>")]
    stands = [on(*one) for one in way] + [ends[-1]]
    if len(way) == 1 and way[0][1] == "parse":
        stands = stands[:1]
    assert is_looped(stands, ends) is looped
    assert comes_once(stands, ends) is once
    # A library may call what it is given as often as it likes.
    if once and len(way) > 1 and way[0][1] == "draw":
        assert comes_once([stands[0]._replace(called_directly=False), *stands[1:]], ends) is None
