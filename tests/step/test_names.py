"""The tables of names: each row has an example that it alone decides, and says where the name is from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Kind
from findwall.model.machine import MATH_TYPES
from findwall.step.kernel_classes import class_part, classify, math_in_name, op_class, uses_tensor_cores
from findwall.step.kernel_names import FORMATS, KERNELS, OPS, TENSOR_CORES
from findwall.step.kernel_names.name_parts import telling_part
from findwall.step.kernel_names.name_table import NameRow, NameTable


def of_kernel(name: str) -> str:
    return classify(name, None, Kind.KERNEL)


@dataclass(frozen=True)
class Reading:
    """A table, the part of a name that is looked up in it, and what the whole makes of a name."""

    table: NameTable[Any]
    part: Callable[[str], str]
    whole: Callable[[str], Any]


READINGS = {
    "kernels": Reading(KERNELS, class_part, of_kernel),
    "ops": Reading(OPS, str.lower, op_class),
    "tensor cores": Reading(TENSOR_CORES, telling_part, uses_tensor_cores),
    "formats": Reading(FORMATS, telling_part, math_in_name),
}
ROWS = [
    pytest.param(rank, reading, id=f"{name} {rank} {reading.table.rows[rank].pattern[:30]}")
    for name, reading in READINGS.items()
    for rank in range(len(reading.table.rows))
]


@pytest.mark.parametrize(("rank", "reading"), ROWS)
def test_a_row_decides_its_own_example(rank: int, reading: Reading) -> None:
    rows = reading.table.rows
    part = reading.part(rows[rank].example)
    decides = next((row for row in rows if re.search(row.pattern, part)), None)
    assert decides is rows[rank]
    assert reading.whole(rows[rank].example) == rows[rank].tells


@pytest.mark.parametrize(("rank", "reading"), ROWS)
def test_a_row_says_where_its_name_is_from(rank: int, reading: Reading) -> None:
    assert reading.table.rows[rank].source.strip(" ;")


def test_rows_tell_what_the_catalogue_knows() -> None:
    assert {row.tells for table in (KERNELS, OPS) for row in table.rows} <= set(KERNEL_CLASSES)
    assert {row.tells for row in FORMATS.rows} <= set(MATH_TYPES)


def test_the_first_row_that_matches_decides() -> None:
    table = NameTable(
        NameRow("b", 1, "b", "here"), NameRow("a", 2, "a", "here"), NameRow("c", 1, "c", "here")
    )
    assert [table.read(name) for name in ("ab", "ac", "c", "d")] == [1, 2, 1, None]
