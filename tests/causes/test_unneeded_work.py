"""Work that nobody needs, of steps that torch really ran and whose tensors were followed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

from dataflow_observed import planted
from findwall.causes.compute import unneeded_work
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|     |     |     "


def fires() -> Facts:
    return replace(planted("teacher_in_graph"), ceilings=table_ceilings("NVIDIA H200"))


def clear() -> Facts:
    return planted("plain_training")


def cannot_tell() -> Facts:
    """Nobody followed the tensors."""
    return facts_of(sketch(cpu=" ooo   ooo   ooo", gpu="  mmm   mmm   mmm", steps=STEPS))


def test_all_of_it_comes_back_with_its_line() -> None:
    facts = fires()
    assert facts.recoverable_ms("unneeded-work") == pytest.approx(facts.spent_ms("unneeded-work"), rel=0.2)
    said = in_words(unneeded_work.CAUSE, facts)
    assert "gradients that no optimizer uses (unneeded_jobs.py:" in said
    assert "requires_grad_(False)" in said


def test_from_a_trace_alone_it_is_not_known() -> None:
    assert "unknown" in in_words(unneeded_work.CAUSE, cannot_tell())
