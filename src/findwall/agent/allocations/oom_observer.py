"""Requests that fail, told by torch's allocator on the thread that asks: only where `--memory` is given.

torch has no way to take an observer back: ours stays, and does nothing once nobody listens. It takes no
memory of the device, keeps no object of the job's, and what it raises stays inside it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

from findwall.agent.timing.sampler import is_library, short
from findwall.apply.registry import CANNOT, REGISTRY

BY = "allocator failures"


class Failed(msgspec.Struct, frozen=True):
    device: int
    asked: int
    limit: int  # that this process may take of the device
    free: int
    place: str | None
    stats: dict[str, int]


class Failures:
    """What was seen so far."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.count = 0
        self._largest: Failed | None = None  # of those before the last
        self.last: Failed | None = None

    def note(self, device: int, asked: int, limit: int, free: int, frame: FrameType | None) -> None:
        self.count += 1
        stats: dict[str, int] = {}
        with suppress(Exception):  # the figures beside it are worth having alone
            stats = dict(self._torch.cuda.memory_stats(device))
        self._largest = self.largest()
        self.last = Failed(device, asked, limit, free, place_of(frame), stats)

    def largest(self, without_last: bool = False) -> Failed | None:
        known = [one for one in (self._largest, None if without_last else self.last) if one is not None]
        return max(known, key=lambda one: one.asked, default=None)


_listening: list[Failures] = []
_attached: list[Any] = []  # torch's own list has it once for all


def watch_failures(torch: Any) -> Failures | None:
    """From now on, once CUDA is up; None where this torch tells nobody."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return None
    found = Failures(torch)
    _listening[:] = [found]
    if torch not in _attached:
        try:
            attach(_failed)
        except RuntimeError:  # an allocator of another kind tells nobody
            return None
        _attached.append(torch)
        REGISTRY.hold(BY, "torch.cuda: observer of requests that fail", None, past_end=CANNOT)
    return found


def forget_failures() -> None:
    """The job has ended."""
    _listening.clear()


def _failed(device: int, asked: int, limit: int, free: int) -> None:
    for one in _listening:
        with suppress(Exception):  # it would take the place of the job's own exception
            one.note(device, asked, limit, free, sys._getframe().f_back)


def place_of(frame: FrameType | None) -> str | None:
    """The innermost line of the person's own code."""
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None
