"""Which files a process of a trial reads that an earlier process of the same trial wrote.

A job that resumes from its own checkpoint goes on with the training of the process before it, whatever was
made in that: then their losses say nothing of a fix. It is told by a file's time: changed since the trial
began, and not since this process did. Seen are files that Python opens and that safetensors loads, in the
process that is measured, until so many were opened: a job resumes before it trains.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

from findwall.agent.ending.writes import PARTS, caches, is_for_writing
from findwall.agent.importhook import when_imported
from findwall.apply.registry import CANNOT, COMPARES, REGISTRY, Call
from findwall.model.arms import SINCE

BY = "trial files"
OPENED = 4096  # files that are looked at. Chosen by hand.
MOST = 10  # paths that are kept. Chosen by hand.
_CODE = (".py", ".pyc", ".so")


class ReadBack:
    """Looks until the process ends, or enough was opened: Python has no way to take this back."""

    def __init__(self, since: float) -> None:
        self._since, self._began = since, time.time()
        self._process, self._left = os.getpid(), OPENED
        self._here = os.path.realpath(".") + os.sep
        self._outside = (*(os.path.realpath(one) + os.sep for one in caches()), "/dev/", "/proc/", "/sys/")
        self._found: dict[str, None] = {}

    @classmethod
    def of_environment(cls) -> ReadBack | None:
        since = os.environ.get(SINCE)
        if not since:
            return None
        read = cls(float(since))
        sys.addaudithook(read._heard)
        REGISTRY.hold(BY, "sys.addaudithook", None, past_end=CANNOT)
        when_imported("safetensors.torch", read._watch, BY, COMPARES)
        return read

    @property
    def paths(self) -> list[str]:
        """Relative to the folder of the job where they are in it."""
        return list(self._found)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and self._left > 0:
            with contextlib.suppress(Exception):  # it is called inside the job's own calls: fail open
                if not is_for_writing(args):
                    self._look(args[0])

    def _look(self, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike) or os.getpid() != self._process:
            return
        name = os.fsdecode(path)
        if name.endswith(_CODE):
            return
        self._left -= 1
        if not self._since <= Path(name).stat().st_mtime < self._began:
            return
        full = os.path.realpath(name)
        if any(part in full for part in PARTS) or full.startswith(self._outside):
            return
        if len(self._found) < MOST:
            self._found[full.removeprefix(self._here)] = None

    def _watch(self, module: Any) -> None:
        """It reads past Python."""

        def looks(original: Call) -> Call:
            @functools.wraps(original)
            def load_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
                with contextlib.suppress(Exception):  # a look at a path of any class: fail open
                    self._look(filename)
                return original(filename, *args, **kwargs)

            return load_file

        if hasattr(module, "load_file"):
            REGISTRY.wrap(BY, module, "load_file", looks, past_trace=COMPARES)
