"""Ranks that wait for a late one."""

from __future__ import annotations

import pytest

from findwall.causes.comms import straggler
from findwall.examine.ranks import compare_ranks, with_ranks
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
EARLY = ("oo        oo        oo", "mnnnnnnn  mnnnnnnn  mnnnnnnn")
LATE = ("oo        oo        oo", "mmmmmmmn  mmmmmmmn  mmmmmmmn")


def rank(number: int, drawing: tuple[str, str]) -> Facts:
    return facts_of(sketch(*drawing, steps=STEPS, rank=number))


def compared(*drawings: tuple[str, str]) -> list[Facts]:
    ranks = [rank(number, drawing) for number, drawing in enumerate(drawings)]
    findings = compare_ranks(ranks)
    assert findings is not None
    return [with_ranks(facts, findings, at) for at, facts in enumerate(ranks)]


def fires() -> Facts:
    return compared(EARLY, LATE)[0]


def clear() -> Facts:
    return compared(EARLY, EARLY)[0]


def cannot_tell() -> Facts:
    return rank(0, EARLY)


def test_names_the_late_rank() -> None:
    facts = fires()
    assert facts.ranks is not None and facts.ranks.late == 1
    assert "rank 1 arrives last in 3 of 3" in in_words(straggler.CAUSE, facts)
    assert facts.spent_ms("straggler") == pytest.approx(6)
    assert facts.spent_ms("exposed-collective") == pytest.approx(1)


def test_the_late_rank_itself_waits_for_nobody() -> None:
    assert compared(EARLY, LATE)[1].spent_ms("straggler") == 0


def test_other_jobs_are_not_compared() -> None:
    other = Drawn("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::allgather_")
    stranger = facts_of(sketch(*EARLY, steps=STEPS, rank=1, kernels={"n": other}))
    assert compare_ranks([rank(0, EARLY), stranger]) is None
    assert compare_ranks([rank(0, EARLY)]) is None


def test_windows_cut_differently_are_shifted() -> None:
    """Rank 1's trace began one collective later."""
    cut = ("oo        oo", "mmmmmmmn  mmmmmmmn")
    shorter = facts_of(sketch(*cut, steps="|         |         ", rank=1))
    findings = compare_ranks([rank(0, EARLY), shorter])
    assert findings is not None and findings.matched == 2


def test_no_rank_is_blamed_by_a_minority_of_collectives() -> None:
    """Of three ranks each is the last once: nobody is late, and the waiting stays the collectives'."""
    cpu, early, late = "oo        ", "mnnnnnnn  ", "mmmmmmmn  "
    drawings = [(cpu * 3, "".join(late if step == at else early for step in range(3))) for at in range(3)]
    for facts in compared(*drawings):
        assert facts.ranks is not None and not facts.ranks.has_late_rank
        assert facts.spent_ms("straggler") == 0


def test_waiting_ends_when_the_other_comes() -> None:
    """A collective that lasts longer here, though the other is on its way no longer, waits for nobody."""
    quick = facts_of(sketch("oo  oo  oo", "mn  mn  mn", "|   |   |   ", rank=1))
    findings = compare_ranks([rank(0, EARLY), quick])
    assert findings is not None
    assert findings.duration[:, 0].tolist() == [7_000_000] * 3
    assert findings.waits[1:].sum() == 0
