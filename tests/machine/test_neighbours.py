"""Other people's work on the cores, told from the system's totals."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from findwall.machine import neighbours
from findwall.machine.neighbours import Look, between, contention, look
from findwall.model.machine import CpuUse

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three cores, of which this process may use two; a loader worker with a child of its own."""
    monkeypatch.setattr(neighbours, "usable", lambda: frozenset({0, 2}))
    idle, busy = f"0 0 0 {9 * TICKS} {TICKS} 0 0 0 0 0", f"{TICKS} 0 {TICKS} 5 5 0 0 {TICKS} 0 0"
    put(tmp_path, "stat", f"cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 {idle}\ncpu1 {busy}\ncpu2 {busy}\nintr 1 2 3\n")
    put(tmp_path, "self/stat", process(2))
    thread = threading.get_native_id()
    put(tmp_path, f"self/task/{os.getpid()}/children", "41 ")
    put(tmp_path, f"self/task/{thread}/children", "41 ")
    put(tmp_path, f"self/task/{thread}/schedstat", "500 2000000000 7")
    put(tmp_path, "41/stat", process(3))
    put(tmp_path, "41/task/41/children", "42 43")
    put(tmp_path, "41/schedstat", "500 1500000000 7")
    put(tmp_path, "42/stat", process(4))  # 43 has ended meanwhile
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    path = root / "proc" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def process(seconds: int) -> str:
    before = " ".join(["S", *["1"] * 10])
    return f"1 (a) name) {before} {seconds * TICKS - 3} 1 1 1 20 0 5"


def test_totals_are_those_of_the_usable_cores_and_of_the_own_tree(system):
    found = look(system)
    assert found is not None
    assert (found.cores, found.busy, found.own, found.in_line) == (2, 3.0, 9.0, 2.0)
    assert found.children == {"41": 4.5, "42": None, "43": None}  # 41: a second and a half in line


@pytest.mark.parametrize("gone", ["stat", "self/task/*/children", "self/stat"])
def test_a_system_that_does_not_tell_is_unknown(system, gone):
    for path in (system / "proc").glob(gone):
        path.unlink()
    assert look(system) is None


def test_this_system_tells_something_or_nothing():
    found = look()
    assert found is None or (found.cores >= 1 and found.busy >= 0)


FIRST = Look(0.0, 4, 100.0, 10.0, {}, 7, 1.0)


@pytest.mark.parametrize(
    ("last", "others", "waited"),
    [
        (Look(2.0, 4, 106.0, 11.0, {}, 7, 1.5), 2.5, 0.25),
        (Look(2.0, 4, 106.0, 11.0, {}, 8, 9.0), 2.5, None),  # another thread's line
        (Look(2.0, 4, 101.0, 12.0, {}, 7, None), 0.0, None),  # coarse ticks: never below zero
    ],
)
def test_others_are_all_less_the_own(last, others, waited):
    found = between(FIRST, last)
    assert found is not None
    assert found.others_busy == pytest.approx(others) and found.in_line_share == waited


@pytest.mark.parametrize(
    "last", [None, Look(0.1, 4, 101.0, 11.0, {}, 7, 1.0), Look(2.0, 3, 1.0, 1.0, {}, 7, 1.0)]
)
def test_too_short_or_another_set_of_cores_is_unknown(last):
    assert between(FIRST, last) is None


def cpu(others: float, waited: float | None = None) -> CpuUse:
    return CpuUse(cores=4, others_busy=others, own_busy=1.0, in_line_share=waited, seconds=2.0)


def test_most_of_the_cores_in_other_hands_is_a_warning():
    assert contention(None) == contention(cpu(2.0)) == contention(cpu(0.3, 0.5)) == []
    (finding,) = contention(cpu(3.06, 0.004))
    assert (finding.id, finding.level) == ("cpu-contended", "warning")
    assert finding.sentence == "Other processes kept 3.1 of 4 cores busy while the steps were timed."
    (finding,) = contention(cpu(3.0, 0.124))
    assert finding.sentence.endswith("and the job's thread waited for one 12 % of the time.")
