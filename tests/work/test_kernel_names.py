"""What the work model reads off a kernel's name: each row of its tables decides its own example."""

from __future__ import annotations

import re
from typing import Any

import pytest

from findwall.step.kernel_names.name_parts import TYPES, item_size_in_name
from findwall.step.kernel_names.name_table import NameRow
from findwall.work.floors import ALIGNED


@pytest.mark.parametrize("row", TYPES.rows, ids=[row.pattern for row in TYPES.rows])
def test_an_element_type_gives_its_size(row: NameRow[int]) -> None:
    assert re.search(row.pattern, row.example.lower())
    assert item_size_in_name(row.example) == row.tells


@pytest.mark.parametrize("row", ALIGNED.rows, ids=[row.pattern for row in ALIGNED.rows])
def test_a_kernel_shows_whether_its_operands_are_aligned(row: NameRow[bool]) -> None:
    name = row.example.lower()
    assert next(other for other in ALIGNED.rows if re.search(other.pattern, name)) is row
    assert ALIGNED.read(name) == row.tells


@pytest.mark.parametrize("row", (*TYPES.rows, *ALIGNED.rows))
def test_a_row_says_where_its_name_is_from(row: NameRow[Any]) -> None:
    assert row.source.strip(" ;")
