"""Figures for people."""

from __future__ import annotations

import pytest

from findwall.units import GIB, format_gib


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (4, "4 B"),
        (80 << 10, "80 KiB"),
        (3 << 19, "1.5 MiB"),
        (1013 << 20, "1013 MiB"),
        (3 << 29, "1.5 GiB"),
        (1234 * GIB, "1,234.0 GiB"),
    ],
)
def test_memory_is_told_in_the_largest_unit_of_which_there_is_one(count: int, said: str) -> None:
    assert format_gib(count / GIB) == said
