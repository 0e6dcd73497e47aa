"""torch's observer of ops (ExecutionTraceObserver): there is one in a process, so one owner has it.

It writes each op with its tensors to a file, on the host alone: no CUPTI, no call to the device. Graph
captures are kept with it, and whole iterations are observed with it after the trace.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BY = "observer"
_ITS_WORDS = b"xecution trace observer"  # what torch says when its observer starts and stops, on stderr


class Observer:
    """Begun and ended by one at a time."""

    def __init__(self) -> None:
        self._torch: Any = None  # while it is in use

    @property
    def is_busy(self) -> bool:
        return self._torch is not None

    def begin(self, torch: Any, path: Path) -> None:
        """It raises where torch has no observer to give."""
        if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE") == "1":
            raise RuntimeError("the job records an execution trace of its own")
        if self.is_busy:
            raise RuntimeError("torch's observer of ops is in use")
        with _without_its_words():
            if not torch._C._profiler._add_execution_trace_observer(str(path)):
                raise RuntimeError("torch did not start its observer of ops")
            self._torch = torch
            torch._C._profiler._enable_execution_trace_observer()

    def end(self) -> None:
        """As often as one likes."""
        torch, self._torch = self._torch, None
        if torch is not None:
            with _without_its_words():
                torch._C._profiler._disable_execution_trace_observer()
                torch._C._profiler._remove_execution_trace_observer()


OBSERVER = Observer()


@contextlib.contextmanager
def _without_its_words() -> Iterator[None]:
    """Keep torch's lines about its observer off the job's stderr; whatever else is written there goes on."""
    try:
        saved = os.dup(2)
    except OSError:  # the job has closed it
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            others = [line for line in held.read().splitlines(True) if _ITS_WORDS not in line.lower()]
            if others:
                os.write(2, b"".join(others))
