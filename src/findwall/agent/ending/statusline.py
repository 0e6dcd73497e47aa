"""One live line on the terminal while a job is measured: `findwall: timing 8 of about 30`.

A thread looks once a second at how far the measurement is; the steps themselves do nothing for it. The line
is erased before the job writes to its own streams, and not drawn while the job stands in the middle of a line
of its own (a progress bar, a prompt). Where stderr is no terminal there is neither thread nor line.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from math import ceil
from statistics import median
from typing import Any

from findwall.agent.ending import stderr
from findwall.agent.engine import Engine
from findwall.agent.stages.timing_stages import (
    TIMED_AT_LEAST_NS,
    TIMED_AT_LEAST_STEPS,
    TIMED_AT_MOST_NS,
    TIMED_STEPS,
)
from findwall.agent.timing.warmup import SETTLES_NS, WINDOW

PERIOD_S = 1.0  # between two looks; chosen by hand
THINKING = "thinking"
WORDS = {
    "agree": "tracing",
    "trace": "tracing",
    "observe": "following its tensors",
    "screening": "switching fixes on and off",
    "snapshot": "recording memory",
    "lines": "looking where the host stands",
    "control": "checking its own cost",
}


class StatusLine:
    """The line of one session, from its begin to its end."""

    def __init__(self, engine: Callable[[], Engine | None]) -> None:
        self._engine = engine
        self._streams = [stream for stream in (sys.stdout, sys.stderr) if _is_terminal(stream)]
        self._at_start = dict.fromkeys(
            map(id, self._streams), True
        )  # of a line: nothing of the job's is in it
        self._last = ""
        self._stopped = threading.Event()
        for stream in self._streams:
            self._watch(stream)
        self._thread = threading.Thread(target=self._look_on, name="findwall-status", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, engine: Callable[[], Engine | None]) -> StatusLine | None:
        """None where nobody would see it."""
        return cls(engine) if stderr.is_watched() else None

    def think(self) -> None:
        """All is measured; the verdict, which prints itself, is on its way."""
        self._stopped.set()
        self._draw(THINKING)

    def stop(self) -> None:
        self._stopped.set()
        stderr.erase()
        self._release()

    def forked(self) -> None:
        """In a child of the job: there is no thread here, and the line is the parent's."""
        self._stopped.set()
        stderr.forget()
        self._release()

    def _look_on(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            try:
                engine = self._engine()
                text = "" if engine is None or engine.off else describe(engine)
                if text and text != self._last:
                    self._draw(text)
            except Exception:  # noqa: BLE001 - fail open: the job's streams may be of any class
                return

    def _draw(self, text: str) -> None:
        if all(self._at_start.values()) and stderr.is_watched() and len(text) + 11 < _columns():
            self._last = text
            stderr.show(text)

    def _watch(self, stream: Any) -> None:
        """Before this stream writes, the line is gone; after, it is known whether a line has ended."""
        original, key, at_start = stream.write, id(stream), self._at_start

        def write(text: str, /) -> Any:
            if stderr.is_shown():
                stderr.erase()
            if text:
                at_start[key] = text[-1:] == "\n"
            return original(text)

        stream.write = write

    def _release(self) -> None:
        for stream in self._streams:
            if getattr(stream.__dict__.get("write"), "__module__", "") == __name__:
                del stream.write
        self._streams = []


def describe(engine: Engine) -> str:
    """How far the measurement is; empty before the first step."""
    stage = engine.stage
    if stage is None:
        return ""
    ended = engine.steps_ended
    if stage.name == "warm-up":
        return f"warm-up {_of(ended, engine.options.wait, _warmup_steps(engine))}"
    if stage.name == "timing":
        return f"timing {_of(ended - engine.record.first_timed, engine.options.steps, _timed_steps(engine))}"
    return WORDS.get(stage.name, "")


def _of(done: int, asked: int | None, expected: int) -> str:
    if asked is not None:
        return f"{min(done, asked)} of {asked}"
    return f"{done} of about {expected}" if done <= expected else f"{done}"


def _warmup_steps(engine: Engine) -> int:
    """The fewest that the test for the warm-up's end can do with."""
    return max(WINDOW, ceil(SETTLES_NS / _step_ns(engine)))


def _timed_steps(engine: Engine) -> int:
    longest = max(TIMED_AT_LEAST_STEPS, ceil(TIMED_AT_MOST_NS / _step_ns(engine)))
    return min(longest, max(TIMED_STEPS, ceil(TIMED_AT_LEAST_NS / _step_ns(engine))))


def _step_ns(engine: Engine) -> float:
    timer = engine.timer
    lately = timer.columns.host_ns[-WINDOW:] if timer is not None else []
    known = lately or engine.record.steps.host_ns[-WINDOW:]
    return max(median(known), 1.0) if known else TIMED_AT_LEAST_NS / TIMED_STEPS


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty()) and hasattr(stream, "__dict__")
    except (AttributeError, ValueError):  # none there, or closed
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80
