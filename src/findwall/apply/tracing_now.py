"""Whether torch's compiler traces the code that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_compiling_of(torch: Any) -> Callable[[], bool]:
    """What the compiler takes for true while it traces: code of the job's that it reads there stays as it
    is."""
    found: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    return found
