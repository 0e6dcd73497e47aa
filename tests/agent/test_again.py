"""A job whose verdict came too early is measured again once it has set itself up."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from findwall.agent.ending.analyst import COMMAND_VARIABLE
from findwall.agent.ending.measuring_again import TIMES, Again, came_too_early, change_the_mean
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.model.measurement import Later

OPTIONS = ("--steps", "12", "--no-trace")
SLOW_UNTIL_JUDGED = """
    import pathlib, time
    from findwall.agent import session
    judged = pathlib.Path("run/diagnosis.json")
    until = time.monotonic() + 120
    blocks = 0

    def is_measured_again():
        return session.current() is not None and session.current().engine.former is not None

    def was_measured_again():
        text = pathlib.Path("run/rank0/measurement.json").read_text()
        return "measured again" in text and '"phase":"done"' in text.replace(" ", "")

    while time.monotonic() < until:
        fast = judged.exists()
        for _ in range(50 if fast else 1):
            step(0.0 if fast else 0.02)
        blocks += fast
        if fast and ({over}):
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
EARLY_VERDICT = """
import json, pathlib, sys
document = pathlib.Path(sys.argv[3])
print("THE VERDICT")
document.write_text(json.dumps({"wall": {"too_early": not document.exists()}}))
"""


@pytest.fixture
def early(warm_jobs) -> dict[str, str]:
    """The environment in which the first verdict of a job comes too early, the second does not."""
    warm_jobs.write(EARLY_VERDICT, "early.py")
    return {COMMAND_VARIABLE: f"{sys.executable} {warm_jobs.folder / 'early.py'}"}


def test_a_job_that_has_set_itself_up_is_measured_again(warm_jobs, training, early):
    source = training(INFERS) + dedent(SLOW_UNTIL_JUDGED.format(over="was_measured_again()"))
    run = warm_jobs.run(source, options=OPTIONS, **early)
    measured = run.measurement()
    assert run.code == 0, run.stderr
    assert run.stderr.count("THE VERDICT") >= 2
    assert "by now, so it is measured again" in run.stderr
    assert any("so it was measured again" in note for note in measured.notes)
    assert sum(measured.steps.host_ns) / len(measured.steps) < 20e6


def test_a_job_that_is_to_be_stopped_waits_where_the_verdict_came_too_early(warm_jobs, training, early):
    source = training(TRAINS) + dedent(SLOW_UNTIL_JUDGED.format(over="False"))
    run = warm_jobs.run(source, options=(*OPTIONS, "--stop"), **early)
    assert run.code == 0, run.stderr
    assert run.stderr.count("THE VERDICT") == 2
    assert "it is measured again if its steps become faster" in run.stderr
    assert not came_too_early(run.folder)


@pytest.mark.parametrize("failure", ["", "raise KeyError('mine')"])
def test_a_job_that_ends_meanwhile_keeps_what_was_measured(warm_jobs, training, early, failure):
    """The second measurement has begun, and is far from having all it wants."""
    source = training(TRAINS) + dedent(SLOW_UNTIL_JUDGED.format(over="is_measured_again()")) + failure
    run = warm_jobs.run(source, options=OPTIONS, **early)
    measured = run.measurement()
    assert run.code == (1 if failure else 0), run.stderr
    assert "so it is measured again" in run.stderr and "no step was found" not in run.stderr
    assert len(measured.steps) >= 12 and sum(measured.steps.host_ns) / len(measured.steps) > 20e6
    assert (measured.phase, measured.final) == ("done", True)
    assert any("ended before it could be measured again" in note for note in measured.notes)


def test_a_verdict_that_came_in_time_stands(warm_jobs, training):
    """The job becomes faster all the same: what is said of that is said at its end."""
    source = training(TRAINS) + dedent(SLOW_UNTIL_JUDGED.format(over="blocks > 20"))
    run = warm_jobs.run(source, options=OPTIONS)
    assert run.code == 0 and "measured again" not in run.stderr


def test_when_it_is_the_moment():
    found = Again(Options(), Membership(rank=0, world_size=1))
    assert found.has_settled(100.0, 49.0) and not found.has_settled(100.0, 51.0)
    for _ in range(TIMES):
        assert found.is_possible
        found.use()
    assert not found.is_possible and not found.has_settled(100.0, 1.0)
    tired = Again(Options(stop=True), Membership(rank=0, world_size=1))
    assert tired.waits_ns < found.waits_ns
    tired.give_up()
    assert tired.is_possible and not tired.may_come_later


def test_nobody_is_measured_again_who_said_when_or_is_not_alone():
    assert not Again(Options(wait=3), Membership(rank=0, world_size=1)).may_come_later
    assert not Again(Options(), Membership(rank=0, world_size=2)).is_possible


@pytest.mark.parametrize("content", ["", "{", "[]", '{"wall": 3}', '{"wall": {"too_early": "x"}}', "{}"])
def test_a_document_that_says_nothing_of_it(tmp_path, content):
    (tmp_path / "diagnosis.json").write_text(content)
    assert not came_too_early(tmp_path)
    assert not came_too_early(None)
    assert not came_too_early(tmp_path / "none")


@pytest.mark.parametrize(
    ("usual_ms", "slow_ms", "timed_ms", "changes"),
    [
        (10.0, [], 10.0, False),  # they go on alike
        (10.0, [50.0], 10.0, False),  # 4 % of the time
        (10.0, [50.0, 30.0], 10.0, True),  # 5.7 %
        (10.0, [50.0] * 10, 14.0, False),  # as often as in the steps that were timed
        (10.0, [50.0] * 20, 14.0, True),  # twice as often
        (4.0, [], 10.0, True),  # much faster than what was timed
        (6.0, [], 10.0, False),
    ],
)
def test_later_steps_change_the_mean_by_what_was_not_known(
    usual_ms: float, slow_ms: list[float], timed_ms: float, changes: bool
) -> None:
    total = (100 - len(slow_ms)) * usual_ms + sum(slow_ms)
    slow_ns = [int(ms * 1e6) for ms in slow_ms]
    later = Later(100, int(total * 1e6), 0, list(range(len(slow_ms))), slow_ns)
    assert change_the_mean(later, timed_ms * 1e6, min(usual_ms, timed_ms) * 1e6) is changes
