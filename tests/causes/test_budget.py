"""One partition of the step: the parts sum to it, whatever is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.causes.budget import CLAIMS, Rows, share_out, split_off
from findwall.model.catalogue import WALLS
from findwall.model.causes import CAUSES
from findwall.model.intervals import union
from findwall.work.work_facts import DeviceAtoms
from sketch import DRAWINGS, Drawing, facts_of, sketch

COMMS = WALLS["comms"]


@drawn(27)
@given(DRAWINGS)
def test_the_first_claim_that_wants_a_row_owns_it(drawing: Drawing) -> None:
    """A row that two claims want is counted once, and a claim that is left out changes no stronger one's."""
    facts = drawing.facts
    assert len(np.unique(facts.atoms.index)) == len(facts.atoms.index)
    index, step = facts.atoms.index, np.zeros(len(facts.atoms.index), np.int64)
    rows = Rows(facts.timeline, facts.kernels, index, step, facts.ceilings)
    taken = np.zeros(len(index), bool)
    for claims in CLAIMS[:2]:  # no regime moves what these own
        for where, name, _ in claims(rows):
            mine = where & ~taken
            if name != "memory-roof":
                wanted = {name, "pipeline-bubble", "small-collectives"} if name in COMMS else {name}
                assert {CAUSES[at] for at in facts.atoms.cause[mine]} <= wanted
            taken |= where


@drawn(27)
@given(DRAWINGS)
def test_the_budget_sums_to_the_step(drawing: Drawing) -> None:
    facts = drawing.facts
    for scenario in facts.reading.scenarios:
        spent = facts.spent(scenario)
        assert spent.total == pytest.approx(scenario.step, rel=1e-6)
        assert (spent.values >= 0).all()


@drawn(20)
@given(DRAWINGS, st.floats(0.9, 3.0))
def test_the_budget_sums_to_a_true_step(drawing: Drawing, factor: float) -> None:
    facts = drawing.facts
    busy = facts.reading.likely.busy
    step_ms = max(factor * facts.step, busy) / 1e6
    given_step = facts_of(drawing.timeline, step_ms=step_ms)
    assert given_step.spent().total / 1e6 == pytest.approx(step_ms, rel=1e-6)


@drawn(20)
@given(DRAWINGS)
def test_recoverable_is_never_more_than_spent(drawing: Drawing) -> None:
    facts = drawing.facts
    spent, gain = facts.spent().values, facts.recoverable().values
    known = ~np.isnan(gain)
    assert (gain[known] <= spent[known] + 1).all()


@drawn(20)
@given(DRAWINGS)
def test_busy_time_is_the_union_and_no_more(drawing: Drawing) -> None:
    facts = drawing.facts
    kernels, index = facts.kernels, facts.atoms.index
    start = np.maximum(kernels.start[index], facts.steps.start)
    end = np.minimum(kernels.end[index], facts.steps.end)
    assert facts.atoms.own.sum() == pytest.approx(union(start, end).length)
    assert facts.atoms.own.sum() <= (end - start).sum() + 1e-6


def test_what_a_collective_shares_with_a_kernel_is_the_kernels() -> None:
    facts = facts_of(sketch(cpu="oo    " * 3, gpu="mmmm  " * 3 + "\n" + "  nnnn" * 3, steps="|     " * 3))
    assert facts.spent_ms("exposed-collective") == pytest.approx(2, abs=0.01)


def test_splitting_off_keeps_the_sum() -> None:
    atoms = DeviceAtoms(np.array([0, 1]), np.array([10.0, 20.0]), np.array([0, 1]), np.array([4.0, np.nan]))
    split = split_off(atoms, np.array([0.25, 1.0]), "straggler")
    assert split.own.sum() == atoms.own.sum()
    assert split.own[split.of("straggler")].tolist() == [2.5, 20.0]
    assert split.floor[:2].tolist()[0] == 4.0


def test_a_long_wait_of_a_queued_kernel_is_unknown() -> None:
    """Launched, the stream free, and still nothing runs for a millisecond: the trace does not say why."""
    facts = facts_of(sketch(cpu="oo   " * 3, gpu="mm  M" * 3, steps="|    " * 3))
    assert facts.spent_ms("unknown") == pytest.approx(2)


ROWS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=30
)


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = np.array([row[0] for row in rows], np.int64)
    return (
        start,
        start + np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )


def test_a_kernel_comes_before_a_collective() -> None:
    own = share_out(np.array([0, 2]), np.array([5, 9]), np.array([0, 1]))
    assert own.tolist() == [5, 4]


def test_equals_share() -> None:
    own = share_out(np.array([0, 0]), np.array([4, 4]), np.array([0, 0]))
    assert own.tolist() == [2, 2]


@given(ROWS)
def test_the_shares_sum_to_the_union(rows: list[tuple[int, int, int]]) -> None:
    start, end, level = arrays(rows)
    own = share_out(start, end, level)
    assert own.sum() == pytest.approx(union(start, end).length)
    assert own.sum() <= (end - start).sum() + 1e-9
    assert ((own >= -1e-9) & (own <= end - start + 1e-9)).all()
