"""The table of the longest ops and kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from findwall.model.diagnosis import Diagnosis, KernelRow, from_json
from findwall.report.texts.top import to_text

Document = Callable[[str], Diagnosis]
FULL = Path(__file__).parents[1] / "fixtures" / "documents" / "full.json"


@pytest.fixture
def diagnosis(document: Document) -> Diagnosis:
    found = document("full")
    found.step.busy_ms = 40.0
    found.kernels = [
        KernelRow(
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)", None, "p"
        ),
        KernelRow("short", "aten::add", "pointwise", 1.5, 2.0, floor_ms=None),
        KernelRow("ampere_bf16_gemm_128x128", "aten::mm", "matmul", 1406, 20.0, floor_ms=5.25),
    ]
    return found


def test_the_longest_come_first_with_calls_share_and_floor(diagnosis: Diagnosis) -> None:
    header, first, second, *rest = to_text(diagnosis, 2).splitlines()
    assert header.split() == ["op", "or", "kernel", "ms/step", "of", "busy", "calls", "floor", "ms"]
    assert first.split() == ["mm", "ampere_bf16_gemm_128x128", "20.000", "50", "%", "1,406", "5.250"]
    assert second.split() == ["add", "short", "2.000", "5.0", "%", "1.5", "?"]
    assert rest == []


def test_an_op_that_is_its_own_kernel_is_named_once(diagnosis: Diagnosis) -> None:
    diagnosis.kernels = [KernelRow("aten::mm", "aten::mm", "matmul", 1, 20.0)]
    assert to_text(diagnosis, 1).splitlines()[1].split()[:2] == ["mm", "20.000"]


def test_what_is_not_kept_is_said(diagnosis: Diagnosis) -> None:
    assert "the longest 3 are kept" in to_text(diagnosis, 50)
    diagnosis.kernels = []
    assert "This input holds no ops or kernels" in to_text(diagnosis, 5)


@given(
    rows=st.lists(st.tuples(st.text(), st.none() | st.text(), st.floats(0, 1e5), st.floats(0, 1e6))),
    width=st.sampled_from([60, 80, 100]),
)
def test_every_line_fits(rows: list[tuple[str, str | None, float, float]], width: int) -> None:
    document = from_json(FULL.read_bytes())
    document.kernels = [KernelRow(name, op, "pointwise", calls, ms) for name, op, ms, calls in rows]
    lines = to_text(document, 10, width, unicode=False).splitlines()
    assert all(cell_len(line) <= width for line in lines)
