"""`torch.cuda.synchronize()` in the job's own lines does nothing, to show what not waiting would give."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from findwall.apply.job_files import OWN
from findwall.apply.job_lines import is_job
from findwall.apply.registry import APPLIED, REGISTRY, called_from, undo_all

STREAMS = "the job works on several streams"
COPIES = "the job copies without waiting"


class SkippedWaits:
    """While one stream does all the work. Where the job works on several, or copies without waiting to or
    from memory of its own, it may rely on the wait: from then on it is made."""

    def __init__(self, torch: Any) -> None:
        self.count = 0
        self.why_not = ""
        self._puts = [
            REGISTRY.wrap("skipped waits", home, name, make, past_end=APPLIED)
            for home, name, make in (
                (torch.cuda, "synchronize", self._skipped),
                (torch.cuda, "set_stream", self._on_streams),
                (torch.Tensor, "copy_", self._copied),
                (torch.Tensor, "to", self._taken_out),
            )
        ]

    def remove(self) -> None:
        undo_all(self._puts)

    def told(self) -> str:
        if not self.count:
            return ""
        return f"{self.count:,} call{'s' if self.count > 1 else ''} of torch.cuda.synchronize skipped"

    def _skipped(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> None:
            if self.why_not or not is_job(_file_of_caller()):
                original(*args, **kwargs)
            else:
                self.count += 1

        return synchronize

    def _on_streams(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def set_stream(*args: Any, **kwargs: Any) -> Any:
            self.why_not = self.why_not or STREAMS
            return original(*args, **kwargs)

        return set_stream

    def _copied(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def copy_(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if _asked(args, kwargs) and not _file_of_caller().startswith(OWN):
                self.why_not = self.why_not or COPIES
            return original(tensor, *args, **kwargs)

        return copy_

    def _taken_out(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """To the device is no matter: torch keeps the memory that is read until it was."""

        @functools.wraps(original)
        def to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensor, *args, **kwargs)
            if _asked(args, kwargs) and result.device.type == "cpu":
                self.why_not = self.why_not or COPIES
            return result

        return to


def _file_of_caller() -> str:
    """Of the function of ours that asks this."""
    frame = called_from(sys._getframe(2))
    return "" if frame is None else frame.f_code.co_filename


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("non_blocking")) or any(one is True for one in args)
