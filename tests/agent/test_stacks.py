"""Looks at the stack of a thread that runs on meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from findwall.agent.timing.thread_stacks import MAKES_FRAMES_LATE, look

DEEP = 30


class Job:
    """A thread that stands in thirty calls, and goes elsewhere when it is let go."""

    def __init__(self) -> None:
        self.stands, self.go, self.left = threading.Event(), threading.Event(), threading.Event()
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.stands.wait(10)
        self.thread_id = self.thread.ident or 0

    def _run(self) -> None:
        self._call(DEEP)
        self._elsewhere(DEEP)

    def _call(self, deeper: int) -> None:
        if deeper:
            return self._call(deeper - 1)
        self.stands.set()
        self.go.wait(10)
        return None

    def _elsewhere(self, deeper: int, *more: int) -> None:
        """Where the calls were that it came out of."""
        if deeper:
            return self._elsewhere(deeper - 1, 1, 2, 3)
        self.left.set()
        self.end.wait(10)
        return None

    def leave(self) -> None:
        self.go.set()
        self.left.wait(10)


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.leave()
    job.end.set()
    job.thread.join(10)


def names(frame: FrameType) -> list[str]:
    """All that is collected at the next chance: not before the first frame's object is to be made."""
    found: list[str] = []
    walk: FrameType | None = frame
    gc.set_threshold(1)
    while walk is not None:
        found.append(walk.f_code.co_name)
        walk = walk.f_back
    return found


class Garbage:
    """Dies by a collection only, and lets the job run on then."""

    def __init__(self, job: Job, finds: list[str]) -> None:
        self.me, self.job, self.finds = self, job, finds

    def __del__(self) -> None:
        self.finds.append("collected")
        self.job.leave()


def test_no_frame_is_gone_while_its_object_is_made(job: Job) -> None:
    finds: list[str] = []
    thresholds = gc.get_threshold()
    gc.collect()
    Garbage(job, finds)

    try:
        seen = look(job.thread_id, names)
    finally:
        gc.set_threshold(*thresholds)
    assert seen is not None
    assert seen.count("_call") == DEEP + 1
    gc.collect()
    assert finds == ["collected"]


@pytest.mark.skipif(not MAKES_FRAMES_LATE, reason="other versions of Python collect nothing there")
@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_during_a_look_and_all_is_as_before_after_it(job: Job, collects: bool) -> None:
    def fail(_frame: FrameType) -> None:
        raise ValueError("a look failed")

    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert look(job.thread_id, lambda _frame: gc.isenabled()) is False
        assert gc.isenabled() is collects
        with pytest.raises(ValueError, match="a look failed"):
            look(job.thread_id, fail)
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()


def test_a_thread_that_is_gone_has_no_frame() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert look(thread.ident or 0, names) is None


def test_no_look_is_taken_where_threads_do_not_take_turns(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert look(job.thread_id, lambda _frame: True) is None
