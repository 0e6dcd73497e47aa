"""Ranks that wait for a late one."""

from __future__ import annotations

import pytest

from findwall.causes.comms import straggler
from findwall.examine.ranks import compare_ranks, with_ranks
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|         " * 5
# The host waits for the device at the end of each step: what it does not wait for is its own work.
EARLY = ("ooeeeeee  " * 5, "mnnnnnnn  " * 5)
LATE = ("ooeeeeee  " * 5, "mmmmmmmn  " * 5)


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
    assert facts.ranks is not None and facts.ranks.named is not None and facts.ranks.named.name == "1"
    assert "rank 1. Its own work takes 5" in in_words(straggler.CAUSE, facts)
    # Not 6 ms: the early rank's host is still at work for the first of its seven in the collective.
    assert facts.ranks.saves["straggler"] == pytest.approx(5e6)


def test_what_it_waits_is_not_transfer() -> None:
    """But for the first of the four steps, before which nobody knows how the recordings began."""
    facts = fires()
    assert facts.spent_ms("straggler") == pytest.approx(3 / 4 * 6, abs=0.1)
    assert facts.spent_ms("exposed-collective") == pytest.approx(1, abs=0.1)
    assert facts.spent_ms("unknown") == pytest.approx(1 / 4 * 6, abs=0.1)


def test_the_late_rank_itself_waits_for_nobody() -> None:
    assert compared(EARLY, LATE)[1].spent_ms("straggler") == 0


def test_other_jobs_are_not_compared() -> None:
    other = Drawn("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::allgather_")
    stranger = facts_of(sketch(*EARLY, steps=STEPS, rank=1, kernels={"n": other}))
    findings = compare_ranks([rank(0, EARLY), stranger])
    assert findings is not None and findings.answer.why_not == "none-shared"
    assert not findings.is_waited_for
    assert compare_ranks([rank(0, EARLY)]) is None


def test_windows_cut_differently_are_shifted() -> None:
    """Rank 1's trace began one collective later, and its clock is ahead of the other's."""
    shorter = facts_of(sketch("ooeeeeee  " * 4, "mmmmmmmn  " * 4, "|         " * 4, rank=1))
    findings = compare_ranks([rank(0, EARLY), shorter])
    assert findings is not None and findings.answer.matched >= 2 * 3


def test_no_rank_is_blamed_by_a_minority_of_collectives() -> None:
    """Of three ranks each is the last in turn: nobody is late."""
    cpu, early, late = "ooeeeeee  ", "mnnnnnnn  ", "mmmmmmmn  "
    steps = range(6)
    drawings = [(cpu * 6, "".join(late if step % 3 == at else early for step in steps)) for at in range(3)]
    ranks = [
        facts_of(sketch(*drawing, steps="|         " * 6, rank=number))
        for number, drawing in enumerate(drawings)
    ]
    findings = compare_ranks(ranks)
    assert findings is not None and findings.named is None and findings.answer.pattern == "uneven"
    assert findings.answer.uneven_why == "device"
    said = in_words(straggler.CAUSE, with_ranks(ranks[0], findings, 0))
    assert "Another of the 3 ranks comes last each step because its device has more to do" in said


def test_a_collective_that_lasts_longer_than_its_transfer_waits() -> None:
    findings = compare_ranks([rank(0, EARLY), rank(1, LATE)])
    assert findings is not None
    wait, duration = findings.waits[0]
    assert (wait <= duration).all() and wait[1:].tolist() == [6e6] * 4
    assert findings.entries[0].tolist() == [6e6, 0, 0, 0, 0]
