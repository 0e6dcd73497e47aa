"""Collectives with nothing beside them."""

from __future__ import annotations

import pytest

from findwall.attribute.facts import Facts
from findwall.walls import exposed_collective
from sketch import facts_of, sketch

STEPS = "|        |        |        "
CPU = "oo       oo       oo"
GPU = "mmmnnnn  mmmnnnn  mmmnnnn"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    gpu = """
mmmmmmmmmMMMMMMMMMmmmmmmmm
 nnnn     nnnn     nnnn
"""
    return facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmmuuuu  mmmuuuu  mmmuuuu", steps=STEPS))


def test_one_rank_says_what_it_cannot_know() -> None:
    assert "one rank's trace cannot tell" in exposed_collective.sentence(fires())


def test_a_slice_shared_with_a_kernel_is_the_kernels() -> None:
    gpu = """
mmmm     mmmm     mmmm
  nnnn     nnnn     nnnn
"""
    facts = facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS))
    assert facts.spent_ms("exposed-collective") == pytest.approx(2)
