"""The columns and the arguments behind them."""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from findwall.model.events import (
    COLUMN_TYPES,
    Details,
    Events,
    Extra,
    Header,
    Inputs,
    Kind,
    Launch,
    ReadQuality,
    Timeline,
)


def events(count: int = 4) -> Events:
    columns = {name: np.arange(count).astype(dtype) for name, dtype in COLUMN_TYPES.items()}
    return Events(**columns)


def test_column_types_name_every_column() -> None:
    assert list(Events.__struct_fields__) == list(COLUMN_TYPES)


def test_take_and_kinds() -> None:
    rows = events()
    assert len(rows) == 4
    assert rows.is_kind(Kind.OP, Kind.RUNTIME).tolist() == [True, False, True, False]
    assert rows.take(np.array([2, 0])).name.tolist() == [2, 0]
    assert rows.take(rows.start > 1).kind.tolist() == [2, 3]
    assert rows.duration.tolist() == [0, 0, 0, 0]


def test_details_decode_once_and_only_where_asked() -> None:
    details = Details(
        inputs=[b'{"dims":[[2,3],[[4],[5]],[]],"types":["float",["a","b"],"Scalar"]}'],
        launch=[b'{"grid":[1,2,3],"registers":40}'],
        extra=[b'{"collective":"allreduce","in_elements":7}'],
    )
    found = details.inputs_of(0)
    assert found == Inputs(dims=[[2, 3], [[4], [5]], []], types=["float", ["a", "b"], "Scalar"])
    assert details.inputs_of(0) is found
    assert details.launch_of(0) == Launch(grid=(1, 2, 3), registers=40)
    assert details.extra_of(0) == Extra(collective="allreduce", in_elements=7)
    assert details.inputs_of(-1) is None


def test_details_that_do_not_fit_are_nothing_recorded() -> None:
    wrong = [b'{"dims":"text"}', b'{"grid":[1,2]}', b"\xff", b'{"types":["\x80"]}', b"[" * 10_000]
    details = Details(inputs=wrong, launch=wrong, extra=wrong)
    for index in range(len(wrong)):
        assert isinstance(details.inputs_of(index), Inputs)
        assert isinstance(details.launch_of(index), Launch)
        assert isinstance(details.extra_of(index), Extra)


def test_names_are_searched_only_where_rows_bear_them() -> None:
    names = ["aten::add", "add_kernel", "cudaLaunchKernel", "add"]
    timeline = Timeline("", events(), names, [], [], Details(), Header(), ReadQuality())
    pattern = re.compile("add")
    assert timeline.named(pattern, np.array([0, 2])).tolist() == [True, False, False, False]
    assert timeline.named(pattern, np.array([3])).tolist() == [True, False, False, True]
    assert timeline.named(pattern).tolist() == [True, True, False, True]
    renamed = replace(timeline, names=["b", "add", "c", "d"])
    assert renamed.named(pattern).tolist() == [False, True, False, False]
