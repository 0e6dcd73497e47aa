"""A job that becomes much faster once it has set itself up is measured again."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from findwall.measure import again
from findwall.measure.again import STOPS_AFTER_NS, TIMES, WATCHED_NS, Again, came_too_early
from findwall.measure.analyst import COMMAND_VARIABLE
from findwall.measure.membership import Membership
from findwall.measure.options import Options

SLOW_UNTIL_JUDGED = """
    import pathlib, time
    judged = pathlib.Path("run/diagnosis.json")
    measurement = pathlib.Path("run/rank0/measurement.json")
    until = time.monotonic() + 120

    def is_over():
        text = measurement.read_text()
        return "measured again" in text and '"phase":"done"' in text.replace(" ", "")

    while time.monotonic() < until:
        fast = judged.exists()
        for _ in range(50 if fast else 1):
            step(0.0 if fast else 0.02)
        if fast and is_over() and "--endless" not in sys.argv:
            break
"""
TRAINS = """
    def step(pause):
        time.sleep(pause)
        train(1)
"""
INFERS = """
    big = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(4)])

    def step(pause):
        time.sleep(pause)
        with torch.no_grad():
            big(torch.zeros(256, 128))
"""
# The first verdict of a job comes too early, the second does not.
EARLY_VERDICT = """
import json, pathlib, sys
document = pathlib.Path(sys.argv[3])
print("THE VERDICT")
document.write_text(json.dumps({"wall": {"too_early": not document.exists()}}))
"""


@pytest.mark.parametrize("step", [TRAINS, INFERS], ids=["training", "inference"])
def test_a_job_that_becomes_much_faster_is_measured_again(jobs, training, step):
    source = training(step) + dedent(SLOW_UNTIL_JUDGED)
    run = jobs.run(source, options=("--steps", "12", "--no-trace"))
    measured = run.measurement()
    assert run.code == 0, run.stderr
    assert run.stderr.count("THE VERDICT") >= 2
    assert "when it was measured, so it is measured again" in run.stderr
    assert any("so it was measured again" in note for note in measured.notes)
    assert sum(measured.steps.host_ns) / len(measured.steps) < 20e6


def test_a_job_that_is_to_be_stopped_waits_where_the_verdict_came_too_early(jobs, training):
    jobs.write(EARLY_VERDICT, "early.py")
    source = training(TRAINS) + dedent(SLOW_UNTIL_JUDGED)
    command = f"{sys.executable} {jobs.folder / 'early.py'}"
    options = ("--steps", "12", "--no-trace", "--stop")
    run = jobs.run(source, "--endless", options=options, **{COMMAND_VARIABLE: command})
    assert run.code == 0, run.stderr
    assert run.stderr.count("THE VERDICT") == 2
    assert "it is measured again if its steps become faster" in run.stderr
    assert not came_too_early(run.folder)


def test_when_it_is_the_moment(monkeypatch):
    alone = Membership(rank=0, world_size=1)
    found = Again(Options(), alone)
    found.measured()
    assert found.is_another_job(100.0, 49.0) and not found.is_another_job(100.0, 51.0)
    assert not found.is_over and not found.is_tired
    now = again.perf_counter_ns()
    monkeypatch.setattr(again, "perf_counter_ns", lambda: now + STOPS_AFTER_NS + 10**9)
    assert found.is_over and not found.is_tired
    monkeypatch.setattr(again, "perf_counter_ns", lambda: now + WATCHED_NS + 10**9)
    assert found.is_tired
    for _ in range(TIMES):
        assert found.is_possible
        found.use()
    assert not found.is_possible and not found.is_another_job(100.0, 1.0)


def test_nobody_is_measured_again_who_said_when_or_is_not_alone():
    assert not Again(Options(wait=3), Membership(rank=0, world_size=1)).may_come_later
    assert not Again(Options(), Membership(rank=0, world_size=2)).is_possible


@pytest.mark.parametrize("content", ["", "{", "[]", '{"wall": 3}', '{"wall": {"too_early": "x"}}', "{}"])
def test_a_document_that_says_nothing_of_it(tmp_path, content):
    (tmp_path / "diagnosis.json").write_text(content)
    assert not came_too_early(tmp_path)
    assert not came_too_early(None)
    assert not came_too_early(tmp_path / "none")
