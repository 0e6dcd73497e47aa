"""What the causes and fixes look at: the same figures from every side."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.causes.verdict import decide
from findwall.examine.establish import establish
from findwall.model.causes import CAUSES
from findwall.model.measured_run import Rank, Run
from sketch import DRAWINGS, Drawing, facts_of, sketch

CPU, GPU, STEPS = "ddd osso  " * 3, "    mm kk " * 3, "|         " * 3


def test_a_rank_without_device_events_has_no_facts() -> None:
    ceilings = facts_of(sketch(cpu="o", gpu="k")).ceilings
    for rank in (Rank(timeline=sketch(cpu="nnn")), Rank()):
        assert establish(Run("torch-trace", ("x",), (rank,)), rank, ceilings, None, "trace") is None


def test_atoms_come_longest_first() -> None:
    facts = facts_of(sketch(cpu="ooo       " * 3, gpu="mmMmmmm   " * 3, steps=STEPS))
    for cause in CAUSES:
        own = facts.own[facts.atoms_of(cause)]
        assert (np.diff(own) <= 0).all()


def test_the_rows_of_an_idle_cause_sum_to_its_idle_time() -> None:
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))
    for cause in ("loader-starved", "host-sync", "host-work"):
        _, amounts = facts.idle_rows(cause)
        assert amounts.sum() == pytest.approx(facts.reading.likely.idle[cause])


def test_atoms_sum_to_the_busy_time() -> None:
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))
    assert float(facts.own.sum()) == pytest.approx(facts.reading.likely.busy)


@drawn(13)
@given(DRAWINGS, st.integers(0, 10**15), st.randoms(use_true_random=False))
def test_order_and_origin_of_the_file_change_nothing(drawing: Drawing, shift: int, random) -> None:  # type: ignore[no-untyped-def]
    facts = drawing.facts
    timeline = drawing.timeline
    order = list(range(len(timeline.events)))
    random.shuffle(order)
    events = timeline.events.take(np.array(order))
    events = replace(events, start=events.start + shift, end=events.end + shift)
    again = facts_of(replace(timeline, events=events, path="renamed"))
    assert again.spent().values == pytest.approx(facts.spent().values, abs=1)
    assert decide(again) == decide(facts)
