"""Look at the stack of another thread without harming it.

Python 3.11 makes a frame's object only when somebody asks for it, and making one may start a collection of
garbage. That runs finalizers, they let the other thread run on, and the frame whose object is being made is
gone by then: the job crashes. Before 3.11 the objects are always there; since 3.12 no allocation collects.
So on 3.11 nothing is collected during a look. Where threads do not take turns (a build without the
interpreter lock) no look is safe, and none is taken.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

MAKES_FRAMES_LATE = sys.version_info[:2] == (3, 11)


def threads_take_turns() -> bool:
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return has_lock()


def look(thread_id: int, see: Callable[[FrameType], T]) -> T | None:
    """What `see` makes of the thread's innermost frame; None where it has none or no look is safe.

    `see` keeps no frame: a later step from it to the one before it would not be guarded.
    """
    if not threads_take_turns():
        return None
    collects = MAKES_FRAMES_LATE and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(thread_id)
        return None if frame is None else see(frame)
    finally:
        if collects:
            gc.enable()
