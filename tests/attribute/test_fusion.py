"""What a chain of memory-bound kernels need not move if it were one."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.attribute.facts import Facts
from findwall.attribute.fusion import is_fusable, saved_bytes
from sketch import BIG, KERNELS, Drawn, facts_of, sketch

SIZE = 4.0 * BIG[0] * BIG[1]


def saved(gpu: str, **kernels: Drawn) -> list[float]:
    """Whole tensors each kernel of one step need not move."""
    facts = chain(gpu, **kernels)
    index = facts.atoms.index
    index = index[: len(index) // facts.steps.count]
    found = saved_bytes(facts.timeline, facts.kernels, index, is_fusable(facts.kernels, index))
    return [round(float(value) / SIZE, 3) for value in found]


def chain(gpu: str, **kernels: Drawn) -> Facts:
    width = len(gpu) + 1
    return facts_of(
        sketch(
            cpu=("o" * len(gpu)).ljust(width) * 3,
            gpu=gpu.ljust(width) * 3,
            steps=("|" + " " * (width - 1)) * 3,
            kernels=kernels,
        )
    )


def test_an_intermediate_is_neither_written_nor_read() -> None:
    assert saved("kKk") == [1, 2, 1]


def test_a_matmul_ends_the_chain() -> None:
    assert saved("kmk") == [0, 0, 0]


def test_another_size_is_another_tensor() -> None:
    other = KERNELS["k"].given([100, 100])
    assert saved("kak", a=other)[1] == 0


def test_a_single_kernel_saves_nothing() -> None:
    assert saved("k") == [0]


def test_without_shapes_nothing_is_known() -> None:
    blank = Drawn(KERNELS["k"].kernel, "aten::mul")
    assert saved("aAa", a=blank) == [0, 0, 0]


def test_a_fused_chain_keeps_its_ends() -> None:
    """Eight kernels that read one tensor and write one leave one read and one write."""
    facts = chain("mkKkKkKkK")  # the matmul parts one step's chain from the next one's
    gain = facts.recoverable_ms("unfused-pointwise")
    must = 2 * SIZE / float(facts.ceilings.bandwidth or np.nan) * 1e3
    arithmetic = 8 * SIZE / 4 / facts.ceilings.flops["fp32"] * 1e3
    assert gain is not None
    assert facts.spent_ms("unfused-pointwise") - gain == pytest.approx(max(must, arithmetic), rel=0.2)
