"""The rank that is not like the others: where all wait for each other, it is the one to look at."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from findwall.attribute.stacks import Doing, Doings
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEARLY_ALL
from findwall.model.run import Rank
from findwall.units import format_share

FEWEST_RANKS = 3  # of two, nobody can say which is the odd one

DOES = {
    "ops": "is inside ops of torch",
    "stalls": "sleeps inside ops of torch",
    "python": "runs Python",
    "loader": "is in its data loader",
    "collective": "is in a collective",
    "reads": "reads values from the device",
    "waits": "sleeps, or waits for something else than the device",
}


def odd_ranks(ranks: Sequence[Rank], seen: Sequence[Doings]) -> dict[int, str]:
    """By their place in the list, those that differ from all others together, and in what."""
    if len(ranks) < FEWEST_RANKS:
        return {}
    found = {}
    for at in range(len(ranks)):
        why = _by_clock(ranks, at) or _by_looks(seen, at) or _by_counters(ranks, at)
        if why:
            found[at] = why
    # Where many differ there is no rule to differ from.
    return found if len(found) < MAJORITY_SHARE * len(ranks) else {}


def _by_clock(ranks: Sequence[Rank], at: int) -> str:
    clocks = [rank.telemetry.sm_clock_mhz for rank in ranks]
    own = clocks[at]
    others = [clock.mean for number, clock in enumerate(clocks) if clock is not None and number != at]
    if own is None or not others or own.mean >= NEARLY_ALL * median(others):
        return ""
    return f"its clock is {own.mean:.0f} MHz, the others' {median(others):.0f}"


def _by_looks(seen: Sequence[Doings], at: int) -> str:
    """Something that it does, or leaves, far more often than the middle of the others, beyond chance."""
    others = [one for number, one in enumerate(seen) if number != at and one.looks]
    if not seen[at].looks or not others:
        return ""
    for doing in sorted(DOES, key=lambda name: -seen[at].of(name).share):
        own = seen[at].of(doing)
        every = sorted((one.of(doing) for one in others), key=lambda one: one.share)
        usual = every[(len(every) - 1) // 2 : len(every) // 2 + 1]  # of an even number, the two in the middle
        if all(_is_apart(own, one) for one in usual):
            line = f" at {own.spots[0][0].place}" if own.spots else ""
            theirs = format_share(usual[0].share)
            return f"it {DOES[doing]}{line} in {format_share(own.share)} of the looks, the others in {theirs}"
    return ""


def _is_apart(own: Doing, other: Doing) -> bool:
    beyond_chance = own.low > other.high or own.high < other.low
    return beyond_chance and abs(own.share - other.share) >= FAIR_PART


def _by_counters(ranks: Sequence[Rank], at: int) -> str:
    busy = [rank.telemetry.gpm.sm if rank.telemetry.gpm is not None else None for rank in ranks]
    own = busy[at]
    others = [share for number, share in enumerate(busy) if share is not None and number != at]
    if own is None or not others or abs(own - median(others)) < 100 * FAIR_PART:
        return ""
    return f"its multiprocessors are busy {own:.0f} % of the time, the others' {median(others):.0f} %"
