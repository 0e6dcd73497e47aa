"""Python's collector stops the host."""

from __future__ import annotations

import pytest

from findwall.causes.overhead import gc_pause
from findwall.facts.facts import Facts
from findwall.model.measured_run import StepTimes
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
GPU = "       m         m         m  "
SILENT = "       o         o         o  "


def fires() -> Facts:
    return facts_of(sketch(cpu="gggggg o  gggggg o  gggggg o  ", gpu=GPU, steps=STEPS))


def clear() -> Facts:
    steady = StepTimes((0.01,) * 20, "measured", gc_s=0.0)
    return facts_of(sketch(cpu=SILENT, gpu=GPU, steps=STEPS), step_times=steady)


def cannot_tell() -> Facts:
    """A trace without stacks shows a collection as silence."""
    return facts_of(sketch(cpu=SILENT, gpu=GPU, steps=STEPS))


def test_a_measured_collection_is_taken_out_of_host_work() -> None:
    timed = StepTimes((0.01,) * 20, "measured", gc_s=0.004)
    facts = facts_of(sketch(cpu=SILENT, gpu=GPU, steps=STEPS), step_times=timed)
    # Some of it falls while the device works: that part keeps nobody waiting.
    assert 3.5 < facts.spent_ms("gc-pause") <= 4
    assert facts.spent_ms("gc-pause") + facts.spent_ms("host-work") == pytest.approx(9, abs=0.01)
    assert "gc.freeze()" in in_words(gc_pause.CAUSE, facts)


def test_a_call_in_the_loop_is_named() -> None:
    assert "Remove gc.collect()" in in_words(gc_pause.CAUSE, fires())


def test_the_line_that_a_run_saw_is_named() -> None:
    """A trace without stacks does not show it."""
    timed = StepTimes((0.01,) * 20, "measured", gc_s=0.004)
    drawing = sketch(cpu=SILENT, gpu=GPU, steps=STEPS)
    facts = facts_of(drawing, step_times=timed, collected_at="train.py:41")
    assert "Remove gc.collect() at train.py:41 from the loop" in in_words(gc_pause.CAUSE, facts)
