"""Which ranks of a large job are traced: some of each machine, and those whose timing stands out.

Traces of all would say little more than a few of each machine, at a thousand times their size. One rank
chooses, by small files that all write once they have timed their steps. Whoever is not among the chosen is
timed alone. No two are asked from the same place on their machines as long as there are others: stages and
the like lie a fixed number of ranks apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import msgspec

from findwall.model.catalogue import WORTH_IT
from findwall.units import NS_PER_S

ALL = "all"
TIMING_FILE = "timing.json"
# All chosen by hand, not calibrated.
TRACED_RANKS = 16  # as many are traced at least; of fewer all
A_MACHINE = 2
STANDING_OUT = 8  # traced besides, at most: those furthest from the others
OUTLYING = 5.0  # times what half of the ranks are within: no longer the same
WAIT_NS = 10 * NS_PER_S  # for the others' timings
READING_SHARE = 0.02  # of the job's time, while they are read


class RankTiming(msgspec.Struct, frozen=True):
    """A rank's mean step, and what of it is its own, whatever it waits for others."""

    rank: int
    node: str
    step_ns: float
    loader_ns: float = 0.0
    gc_ns: float = 0.0


def parsed(asked: str | None) -> str | int | tuple[int, ...] | None:
    """What a person asks for: "all", how many, or which ("0,3,8-11"); None: findwall decides. ValueError."""
    if asked is None or asked == ALL:
        return asked
    if asked.isdecimal():
        if int(asked) < 1:
            raise ValueError(asked)
        return int(asked)
    found: set[int] = set()
    for part in asked.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(asked)
        found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def is_sampled(asked: str | None, world_size: int) -> bool:
    """Whether it takes the ranks' timings to choose."""
    wanted = parsed(asked)
    return (wanted is None and world_size > TRACED_RANKS) or (isinstance(wanted, int) and wanted < world_size)


def named(asked: str | None) -> list[int] | None:
    """Those that a person named; None: all of them."""
    wanted = parsed(asked)
    return list(wanted) if isinstance(wanted, tuple) else None


def choose(asked: str | None, timings: list[RankTiming]) -> list[int]:
    """Of those who told their timing."""
    machines: dict[str, list[int]] = {}
    for one in sorted(timings, key=lambda one: one.rank):
        machines.setdefault(one.node, []).append(one.rank)
    wanted = parsed(asked)
    odd = standing_out(timings)
    if isinstance(wanted, int):
        odd = odd[: wanted // 2]
        return sorted(_spread(machines, wanted, odd))
    wanted = max(TRACED_RANKS, A_MACHINE * len(machines))
    return sorted({*_spread(machines, wanted, []), *odd})


def standing_out(timings: list[RankTiming]) -> list[int]:
    """Ranks by how much longer than the others' their steps are, or what of them is their own."""
    if not timings:
        return []
    worth = WORTH_IT * median(one.step_ns for one in timings)
    beyond: dict[int, float] = {}
    for name in ("step_ns", "loader_ns", "gc_ns"):
        values = [getattr(one, name) for one in timings]
        middle = median(values)
        limit = max(OUTLYING * median(abs(value - middle) for value in values), worth)
        for one, value in zip(timings, values, strict=True):
            if value - middle > limit:
                beyond[one.rank] = max(beyond.get(one.rank, 0.0), value - middle)
    return sorted(beyond, key=lambda rank: -beyond[rank])[:STANDING_OUT]


def _spread(machines: dict[str, list[int]], count: int, taken: Iterable[int]) -> set[int]:
    """So many ranks with those taken, a machine after the other, and from another place on each."""
    found = set(taken)
    every = list(machines.values())
    count = min(count, sum(map(len, every)))
    turn = 0
    while len(found) < count:
        again, place = divmod(turn, len(every))
        own = every[place]
        begin = place + again * max(len(own) // A_MACHINE, 1)
        order = (own[(begin + at) % len(own)] for at in range(len(own)))
        found.update([rank for rank in order if rank not in found][:1])
        turn += 1
    return found


class Choice:
    """The choosing rank's look at the others' files: a little at a time, between steps of the job."""

    def __init__(self, folder: Path, asked: str | None, own: RankTiming, world_size: int) -> None:
        self._folder, self._asked = folder, asked
        self._found = [own]
        self._left = [rank for rank in range(world_size) if rank != own.rank]
        self._began = self._looked = perf_counter_ns()

    def ranks(self) -> list[int] | None:
        """None while it waits for others."""
        now = perf_counter_ns()
        until = now + READING_SHARE * (now - self._looked)
        self._looked = now
        again: list[int] = []
        while self._left:
            rank = self._left.pop()
            timing = _timing_of(self._folder / f"rank{rank}")
            if timing is None:
                again.append(rank)
            else:
                self._found.append(timing)
            if perf_counter_ns() > until:
                break
        self._left = again + self._left
        if self._left and now - self._began < WAIT_NS:
            return None
        return choose(self._asked, self._found)


def _timing_of(folder: Path) -> RankTiming | None:
    try:
        return msgspec.json.decode((folder / TIMING_FILE).read_bytes(), type=RankTiming)
    except (OSError, msgspec.MsgspecError):
        return None
