"""Look at what a job makes of a class, right after it is made."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def after_made(kind: Any, then: Callable[[Any], None]) -> None:
    """Call `then` with every new one of this kind. It may not raise into the job."""
    original = kind.__init__

    @functools.wraps(original)
    def make(new: Any, *args: Any, **kwargs: Any) -> None:
        original(new, *args, **kwargs)
        then(new)

    kind.__init__ = make
