"""On which line of the job each op was called: a range of ours each time the job comes to another line.

torch's observer sees ops and no Python. For the iterations that it observes, Python tells when the thread
that trains comes to a line of the job's own files; library code is passed by. Whoever traces Python already,
a debugger or a coverage tool, is left alone.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from findwall.model.dataflow import LINE

MOST_LINES = 20_000  # of all iterations: each costs about as much as an op. Chosen by hand.
_LIBRARIES = tuple(
    {
        str(Path(path).resolve())
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
)
_OWN = str(Path(__file__).resolve().parents[2])


@cache
def is_own(file: str) -> bool:
    """Whether a file is the job's: no library, nothing that was made up, nothing of findwall."""
    if file.startswith("<") or "site-packages" in file or "dist-packages" in file:
        return False
    return not str(Path(file).resolve()).startswith((*_LIBRARIES, _OWN))


def _own_caller(frame: FrameType) -> FrameType | None:
    """The next frame of the job's above this one: a job calls torch, which calls the job's own layer."""
    above = frame.f_back
    while above is not None and not is_own(above.f_code.co_filename):
        above = above.f_back
    return above


class LineMarks:
    """From `begin` to `end`, on the thread that calls both."""

    def __init__(self, torch: Any) -> None:
        self._range = torch.autograd.profiler.record_function
        self._left = MOST_LINES
        self._last: tuple[Any, int] | None = None
        self._frames: list[FrameType] = []
        self._on = False

    def begin(self) -> None:
        if sys.gettrace() is not None or threading.gettrace() is not None:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # those that run already
            if is_own(frame.f_code.co_filename) and frame.f_trace is None:
                frame.f_trace = self._inside
                self._frames.append(frame)
            frame = frame.f_back
        self._on = True
        sys.settrace(self._called)

    def end(self) -> None:
        """As often as one likes."""
        if self._on and sys.gettrace() == self._called:
            sys.settrace(None)
        self._on = False
        for frame in self._frames:
            frame.f_trace = None
        self._frames = []

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._inside if self._on and is_own(frame.f_code.co_filename) else None

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self._on:
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":
            caller = _own_caller(frame)
            if caller is not None and (caller.f_code, caller.f_lineno) != self._last:
                self._mark(caller)  # its line goes on
        return self._inside

    def _mark(self, frame: FrameType) -> None:
        """A line that comes again is told again: a loop may have no other."""
        if self._left <= 0:
            return
        self._last = frame.f_code, frame.f_lineno
        self._left -= 1
        with self._range(f"{LINE}{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"):
            pass
