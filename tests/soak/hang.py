"""A guard against what never ends. Generous: it tells a hang from a slow machine, not slow from fast."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

HANG_S = 180


class HangError(Exception):
    """What was tried did not end."""


@contextmanager
def hang_guard(seconds: float = HANG_S) -> Iterator[None]:
    """Raise in the block if it is still at work then. For the main thread."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise HangError(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
