"""Matmuls at the ceiling."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import at_the_roof
from sketch import facts_of, sketch

STEPS = "|     |     |     "
CPU = "oooo  oooo  oooo"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mMmMmMmMmMmMmMmMmM", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmm   mmm   mmm", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mMmMmMmMmMmMmMmMmM", steps=STEPS, device=""))


def test_says_what_is_left() -> None:
    assert "fp8" in at_the_roof.sentence(fires())
    assert "of its ceiling" in at_the_roof.evidence(fires())[0].text
