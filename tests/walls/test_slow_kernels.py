"""Matmuls far under the ceiling with nothing wrong in type or shape."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import slow_kernels
from sketch import KERNELS, Drawn, facts_of, sketch

STEPS = "|        |        |        "
CPU = "o        o        o"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmmmmm   mmmmmm   mmmmmm", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    blank = {"m": Drawn(KERNELS["m"].kernel, "aten::mm")}
    return facts_of(sketch(cpu=CPU, gpu="mmmmmm   mmmmmm   mmmmmm", steps=STEPS, kernels=blank))


def test_says_how_far_below() -> None:
    assert "16 % of its ceiling" in slow_kernels.evidence(fires())[0].text
