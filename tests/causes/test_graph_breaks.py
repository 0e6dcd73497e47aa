"""A compiled call that leaves its graph."""

from __future__ import annotations

from findwall.causes.overhead import graph_breaks
from findwall.facts.facts import Facts
from findwall.model.events import Kind
from sketch import facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|           |           |           "
BROKEN = """
RRRRRRRRRR  RRRRRRRRRR  RRRRRRRRRR
GG    QQQQ  GG    QQQQ  GG    QQQQ
o     GGGG  o     GGGG  o     GGGG
      o           o           o
"""
WHOLE = """
RRRRRRRRRR  RRRRRRRRRR  RRRRRRRRRR
GGGGGGGGGG  GGGGGGGGGG  GGGGGGGGGG
o     o     o     o     o     o
"""
GPU = "m     m     m     m     m     m"
RESUMED = {"Q": (Kind.OP, "Torch-Compiled Region: 1/0")}


def fires() -> Facts:
    return facts_of(sketch(cpu=BROKEN, gpu=GPU, steps=STEPS, host=RESUMED))


def clear() -> Facts:
    return facts_of(sketch(cpu=WHOLE, gpu=GPU, steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_counts_the_breaks() -> None:
    facts = fires()
    assert "leaves its graph once per step" in in_words(graph_breaks.CAUSE, facts)
    assert "Torch-Compiled Region: 1/0" in evidence_of(graph_breaks.CAUSE, facts)[0]


def test_a_compiled_module_after_another_is_no_break() -> None:
    apart = BROKEN.replace("RRRRRRRRRR", "RRR       ")
    facts = facts_of(sketch(cpu=apart, gpu=GPU, steps=STEPS, host=RESUMED))
    assert facts.spent_ms("graph-breaks") == 0
