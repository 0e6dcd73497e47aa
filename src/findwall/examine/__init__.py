"""From a Run to its Diagnosis: establish the facts, decide, prescribe, write it all into the document."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from findwall.examine.examination import Examined, examine, facts_of, look_into

__all__ = ["Examined", "examine", "facts_of", "look_into"]


def __getattr__(name: str) -> Any:
    """The whole walk takes a second to import: who wants one room of it gets that alone."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("findwall.examine.examination"), name)
