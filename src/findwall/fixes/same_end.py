"""Fixes that are two ways to the same end: nobody makes both, and one of the two asks for less."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from findwall.fixes import all_fixes


@cache
def pairs() -> frozenset[frozenset[str]]:
    return frozenset(
        frozenset((name, plainer)) for name, fix in all_fixes().items() for plainer in fix.plainer
    )


def are_apart(one: str, other: str) -> bool:
    return frozenset((one, other)) in pairs()


def exclude_each_other(names: Iterable[str]) -> bool:
    """Whether two of these are ways to the same end."""
    named = frozenset(names)
    return any(pair <= named for pair in pairs())


def is_plainer(one: str, other: str) -> bool:
    """Whether the first of two ways to the same end asks for less."""
    return one in all_fixes()[other].plainer
