"""The queue run again: unchanged it gives the trace, with a cheaper host or without its waits less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from findwall.structure.queue import rerun
from findwall.structure.host import OWNERS
from sketch import DRAWINGS, Drawing, facts_of, sketch


@settings(max_examples=60, deadline=None)
@given(DRAWINGS)
def test_unchanged_it_gives_the_traces_length(drawing: Drawing) -> None:
    facts = drawing.facts
    again = rerun(facts.queue, facts.host, 0.0)
    assert again.length == pytest.approx(facts.steps.end - facts.steps.start, abs=1)


@settings(max_examples=60, deadline=None)
@given(DRAWINGS, st.floats(0, 8000))
def test_a_cheaper_host_is_never_slower(drawing: Drawing, cost: float) -> None:
    facts = drawing.facts
    busy = float(facts.queue.own.sum())
    length = rerun(facts.queue, facts.host, cost).length
    assert busy - 1 <= length <= rerun(facts.queue, facts.host, 0.0).length + 1


def test_idle_and_busy_make_up_the_window() -> None:
    facts = facts_of(sketch(cpu="o.o..o  " * 3, gpu="k  k   k" * 3, steps="|       " * 3))
    again = rerun(facts.queue, facts.host, 0.0)
    assert again.gap.sum() + facts.queue.own.sum() == pytest.approx(again.length)


def test_queued_kernels_keep_their_turn_around() -> None:
    """Launched long ago: no host can close the gap between them."""
    facts = facts_of(sketch(cpu="ooo       " * 3, gpu="kkkk.kk.kk" * 3, steps="|         " * 3, us=10))
    assert facts.queue.queued[1]
    cheap = rerun(facts.queue, facts.host, 8000.0)
    assert cheap.gap[1] == facts.queue.gap[1]


def test_a_host_given_its_time_back_closes_gaps() -> None:
    facts = facts_of(sketch(cpu="o..." * 9, gpu="k..." * 9, steps=("|" + " " * 11) * 3, us=4))
    gap = [rerun(facts.queue, facts.host, cost).gap.sum() for cost in (0.0, 2000.0, 8000.0)]
    assert gap[0] > gap[1] > gap[2]


def test_without_a_synchronize_the_queue_stays_full() -> None:
    facts = facts_of(sketch(cpu="osssoooo  " * 3, gpu="mmmm mMmM " * 3, steps=("|" + " " * 9) * 3))
    with_it = rerun(facts.queue, facts.host, 0.0)
    without = rerun(facts.queue, facts.host, 0.0, without=OWNERS.index("host-sync"))
    assert without.gap.sum() < with_it.gap.sum()


def test_an_overlap_counts_once() -> None:
    facts = facts_of(sketch(cpu="oo  " * 3, gpu="mmm mmm mmm\n mmm mmm mmm", steps="|   " * 3))
    assert facts.queue.own.sum() <= facts.steps.end - facts.steps.start
    assert np.all(facts.queue.own >= 0)
