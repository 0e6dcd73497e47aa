"""An autocast of the job's own that asks for fp32, entered with the numbers of a fix instead.

It asks for nothing, and one put around it would change nothing inside: so it is made as the patch writes it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from findwall.apply.registry import Call
from findwall.fixes.precision.autocast_seen import is_narrow

KINDS = ("cuda", "cpu")  # of devices that models lie on; others have autocast as well, untried


class LentAutocast:
    """In each thread those that the job is inside of, as they were."""

    def __init__(self, torch: Any, dtype: Any, is_ours: Callable[[], bool]) -> None:
        """`is_ours`: whether the fix has autocast on itself."""
        self._torch, self._dtype, self._is_ours = torch, dtype, is_ours
        self._here = threading.local()
        self.is_over = False  # the job narrows numbers itself: what it leaves out is left out

    @property
    def is_on(self) -> bool:
        return bool(self._stack)

    @property
    def _stack(self) -> list[tuple[Any, bool]]:
        found: list[tuple[Any, bool]] = self._here.__dict__.setdefault("stack", [])
        return found

    def entering(self, original: Call) -> Call:
        @functools.wraps(original)
        def entered(one: Any) -> Any:
            if self._asks_for_nothing(one):
                self._stack.append((one, one._enabled))
                one._enabled, one.fast_dtype = True, self._dtype
            return original(one)

        return entered

    def leaving(self, original: Call) -> Call:
        @functools.wraps(original)
        def left(one: Any, *args: Any) -> Any:
            if self.is_on and self._stack[-1][0] is one:
                one._enabled, one.fast_dtype = self._stack.pop()[1], self._torch.float32
            return original(one, *args)

        return left

    def _asks_for_nothing(self, one: Any) -> bool:
        """Inside one of the job's own in 16 bits it is there to leave something out."""
        torch = self._torch
        if self.is_over or one.fast_dtype is not torch.float32 or one.device not in KINDS:
            return False
        is_on = torch.is_autocast_enabled(one.device) and is_narrow(torch.get_autocast_dtype(one.device))
        return not is_on or self.is_on or self._is_ours()
