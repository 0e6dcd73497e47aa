"""Rows fetched from scattered places."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import gather_scatter
from sketch import facts_of, sketch

STEPS = "|        |        |        "
CPU = "o        o        o"
GPU = "xxxxx    xxxxx    xxxxx"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def test_names_the_op() -> None:
    assert "gather" in gather_scatter.sentence(fires())
    assert "[1000000×64]" in gather_scatter.evidence(fires())[0].text
