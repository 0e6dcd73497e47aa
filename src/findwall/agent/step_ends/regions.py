"""The last resort for where a step ends: the outermost no_grad or inference_mode region that the job leaves.

A job of plain functions has no optimizer, no module call and no loader, but it often infers under no_grad.
The wrap is taken off as soon as anything better ends steps. torch's own regions (initialisers, optimizers) do
not count.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from findwall.apply.registry import COUNTS, REGISTRY, Call, Put, called_from, undo_all

BY = "regions"
DECORATOR_FILE = "_contextlib.py"  # torch's own frame between a decorated function and its caller


def watch_regions(torch: Any, thread_id: int, left: Callable[[int], None]) -> Callable[[], None]:
    """Call `left(key)` after each outermost region of the job's code. Returns what takes the wraps off."""
    inside = (
        (torch.no_grad, lambda: not torch.is_grad_enabled()),
        (torch.inference_mode, torch.is_inference_mode_enabled),
    )
    library = str(Path(torch.__file__).parent)
    puts = [_wrap_exit(region, still, library, thread_id, left) for region, still in inside]
    return lambda: undo_all(puts)


def _wrap_exit(
    region: Any, still_inside: Callable[[], bool], library: str, thread_id: int, left: Callable[[int], None]
) -> Put:
    def leaves(original: Call) -> Call:
        @functools.wraps(original)
        def leave(self: Any, *exception: Any) -> Any:
            result = original(self, *exception)
            if not still_inside() and threading.get_ident() == thread_id:
                key = place_of(called_from(sys._getframe(1)), library)
                if key is not None:
                    left(key)
            return result

        return leave

    return REGISTRY.wrap(BY, region, "__exit__", leaves, past_trace=COUNTS)


def place_of(frame: FrameType | None, library: str) -> int | None:
    """One number for the line that holds the region; None inside torch itself."""
    if frame is not None and frame.f_code.co_filename.endswith(DECORATOR_FILE):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(library):
        return None
    return hash((frame.f_code.co_filename, frame.f_lineno))
