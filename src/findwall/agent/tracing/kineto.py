"""Kineto's own lines on stderr (`USDT: … profiler_start`), kept off while our session opens and closes.

They are written by C++ below every Python stream. Catching the descriptor would catch what the job's threads
and children write too; so kineto's own level is raised for the moment, and put back as it was for the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LEVEL = "_ZN9libkineto6Logger14severityLevel_E"  # libkineto::Logger::severityLevel_, an atomic int
ABOVE_ALL = 6  # of kineto's levels the highest is USDT, 5
ASKED = "KINETO_LOG_LEVEL"  # who sets it wants to read the lines


@contextlib.contextmanager
def quiet(torch: Any) -> Iterator[None]:
    """Around calls of our own that start or stop a session; nothing where this torch has no such level."""
    level = _level(torch)
    if level is None:
        yield
        return
    before, level.value = level.value, ABOVE_ALL
    try:
        yield
    finally:
        level.value = before


def _level(torch: Any) -> ctypes.c_int | None:
    if os.environ.get(ASKED) or not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        file = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        loaded = ctypes.CDLL(str(file), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)  # never a second copy of it
        return ctypes.c_int.in_dll(loaded, LEVEL)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
