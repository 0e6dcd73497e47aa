"""Look at what a job makes of a class, right after it is made."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from findwall.apply.registry import APPLIED, REGISTRY, Call


def after_made(by: str, kind: Any, then: Callable[[Any], None]) -> None:
    """Call `then` with every new one of this kind. It may not raise into the job. `by`: the fix it is for."""

    def makes(original: Call) -> Call:
        @functools.wraps(original)
        def make(new: Any, *args: Any, **kwargs: Any) -> None:
            original(new, *args, **kwargs)
            then(new)

        return make

    REGISTRY.wrap(by, kind, "__init__", makes, past_end=APPLIED)
