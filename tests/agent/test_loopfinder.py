"""The job's own loop as the step: which one it is, and that nothing of it is left behind.

Python tells of a loop's turns from 3.12 on. The jobs of `loop_cases.py` are run by every such interpreter
that is found, for the one that runs the tests may be older.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.step_ends import loopfinder
from findwall.agent.step_ends.loopfinder import LoopFinder, Turns, choose
from findwall.agent.step_ends.nosteps import NO_LOOPS, NO_STEPS, no_steps
from findwall.agent.step_ends.stepfinder import PATIENCE, StepEnd, StepFinder
from findwall.apply.job_files import JobFiles

CASES = Path(__file__).parent / "loop_cases.py"
SOURCE = Path(loopfinder.__file__).parents[3]
NS = 1_000_000_000


def interpreters() -> list[str]:
    """One of each version that has `sys.monitoring`."""
    places = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in (12, 13, 14))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places += [str(path) for path in sorted(pyenv.glob("3.1[2-9]*/bin/python"))]
    found: dict[str, str] = {}
    for place in filter(None, places):
        told = subprocess.run([place, "-VV"], capture_output=True, text=True, check=False)
        version = re.match(r"Python 3\.(\d+)", told.stdout)
        if told.returncode == 0 and version is not None and int(version[1]) >= 12:
            found.setdefault(version[1], place)
    return list(found.values())


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, Any]]:
    """What each interpreter found in each case. All at once: the cases sleep most of the time."""
    pythons = interpreters()
    if not pythons:
        pytest.skip("no Python with sys.monitoring here")
    folders = [tmp_path_factory.mktemp("cases") for _ in pythons]
    with ThreadPoolExecutor(len(pythons)) as pool:
        return list(pool.map(cases_of, pythons, folders))


def cases_of(python: str, folder: Path) -> dict[str, Any]:
    run = subprocess.run(
        [python, "-W", "ignore", str(CASES)],
        capture_output=True,
        text=True,
        env={**os.environ, "FINDWALL_SOURCE": str(SOURCE), "FINDWALL_CASES": str(folder)},
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_the_outermost_loop_that_turns_steadily_is_the_step(found):
    for cases in found:
        for name, case in cases.items():
            wanted = case["expected"] or ([case["out"]] if str(case["out"]).endswith(".py:1") else [])
            if name != "case_library":
                assert (case["places"], case["failures"]) == (wanted, []), name
            assert case["strange"] == 0, name
            assert case["tools"] == [None] * 6, name


def test_a_library_that_calls_the_job_holds_the_step(found):
    for cases in found:
        assert cases["case_library"]["places"] == [cases["case_library"]["out"]]


def test_loops_are_seen_as_they_are_written(found):
    for cases in found:
        assert cases["structure"]["out"] == [[1, 2], [6, 2], [7, 2], [12, 2]]


def test_a_job_that_is_stopped_in_its_loop_leaves_in_good_order(found):
    for cases in found:
        assert cases["case_stopped_in_for"]["out"] == [["finally", "SystemExit", 0], [None] * 6]
        assert cases["case_stopped_in_while"]["out"][0][-1] == 0


def test_other_tools_are_left_alone(found):
    for cases in found:
        assert cases["case_own_tool"]["out"] is True
        assert cases["case_no_tool_left"]["out"] == ["job", "job"]
        assert cases["case_no_tool_left"]["turns"] == 0


def test_nothing_is_left_once_steps_end_otherwise(found):
    for cases in found:
        assert cases["case_better_later"]["out"] == 0
        assert cases["case_forked"]["out"] == 0


def test_a_tight_loop_in_the_step_is_hardly_told_of(found):
    """Each turn that Python tells of costs the job; the time it takes is the machine's matter."""
    for cases in found:
        out = cases["case_hot"]["out"]
        assert 0 < out["told"] < out["turns"] / 1000


def turns(since: float, ends: list[float]) -> Turns:
    made = Turns(SimpleNamespace(), int(since * NS))
    for end in ends:
        made.add(int(end * NS))
    return made


def test_an_epoch_is_waited_for_and_then_passed_over():
    epoch, batch = turns(0, []), turns(0, [0.1 * k for k in range(1, 30)])
    assert choose([epoch, batch], 3 * NS) is None
    batch = turns(0, [0.1 * k for k in range(1, 100)])
    assert choose([epoch, batch], 10 * NS) is batch


def test_a_slow_call_is_waited_for_although_its_layers_turn():
    call, layer = turns(0, [3, 6]), turns(0, [0.2 * k for k in range(1, 45)])
    assert choose([call, layer], 9 * NS) is None
    assert choose([turns(0, [3, 6, 9, 12]), layer], 13 * NS).count == 4


def test_a_loop_that_turns_too_seldom_starts_anew():
    assert turns(0, [1, 2, 3, 20]).count == 1


def test_a_loop_that_turned_only_for_a_moment_is_no_step():
    assert not turns(0, [0.01 * k for k in range(1, 20)]).is_steady


def test_a_loop_that_turns_too_often_is_silenced():
    made = turns(0, [])
    assert not any(made.costs_too_much(now) for now in range(0, 31_000, 1000))
    assert made.costs_too_much(32_000) and made.too_fast
    assert choose([made], NS) is None
    slow = turns(0, [])
    assert not any(slow.costs_too_much(now * NS) for now in range(200))


def stack(*files: str) -> list[tuple[Any, int]]:
    return [(SimpleNamespace(co_filename=file), 0) for file in files]


def test_frames_outside_of_the_job_are_not_looked_at():
    python, ours = os.__file__, loopfinder.__file__
    inside = stack("/lib/site-packages/torch/nn.py", "/job/model.py", python, "/job/train.py", ours, python)
    assert [code.co_filename for code, _ in JobFiles("/job/train.py").of_the_job(inside)] == [
        "/job/train.py",
        "/job/model.py",
    ]
    calls = stack(
        "/job/model.py", "/lib/site-packages/runner.py", "/job/train.py", "/lib/site-packages/click.py"
    )
    assert [code.co_filename for code, _ in JobFiles("/job/train.py").of_the_job(calls)] == [
        "/job/train.py",
        "/lib/site-packages/runner.py",
        "/job/model.py",
    ]
    assert JobFiles("").of_the_job(stack(python, "<frozen runpy>")) == []


def test_an_installed_job_is_a_job():
    files = JobFiles("/lib/site-packages/package/__main__.py")
    assert files.is_own("/lib/site-packages/package/search.py")
    assert not files.is_own("/lib/site-packages/other/search.py")


def test_an_older_python_is_left_alone(monkeypatch):
    monkeypatch.setattr(loopfinder, "monitoring", lambda: None)
    finder = LoopFinder(0, SimpleNamespace(), "", lambda: 0)
    finder.start()
    finder.stop()
    finder.forked()
    finder.join()


def test_turns_are_believed_at_once_and_give_way_to_anything_better():
    finder = StepFinder()
    assert [finder.mark(StepEnd.LOOP, 5) for _ in range(3)] == [True] * 3
    assert (finder.source.label, finder.key, finder.marks) == ("loop", 5, 0)
    for _ in range(PATIENCE[StepEnd.REGION]):
        assert not finder.mark(StepEnd.REGION, 1)
    assert finder.mark(StepEnd.REGION, 1) and finder.take_restart() == (True, True)
    assert not finder.mark(StepEnd.LOOP, 5)


def test_without_a_step_a_person_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr("findwall.agent.step_ends.nosteps.monitoring", lambda: None)
    said = no_steps([], False, looks_at_loops=True)
    assert said == NO_STEPS + NO_LOOPS and "m.step()" in said and "Python 3.12" in said
    monkeypatch.setattr("findwall.agent.step_ends.nosteps.monitoring", lambda: object())
    assert "Nor did a loop" in no_steps([], False, looks_at_loops=True)
    assert no_steps([], True, looks_at_loops=True) == NO_STEPS
