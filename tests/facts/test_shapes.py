"""Shapes of tensors, and what they are padded to."""

from __future__ import annotations

import pytest

from findwall.facts.op_shapes import padded


@pytest.mark.parametrize(
    ("extent", "expected"), [(50257, 50304), (4093, 4096), (1023, 1024), (30, 32), (7, 8), (100, 104)]
)
def test_sizes_are_padded_to_what_costs_little(extent: int, expected: int) -> None:
    assert padded(extent) == expected
