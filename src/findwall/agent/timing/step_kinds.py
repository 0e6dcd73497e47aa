"""Steps come in kinds: every k-th one logs, saves, evaluates, rolls out, restarts the loader's workers.

The kinds are told from the steps' own times: most steps are alike, and those that stand out come at even
distances or seldom. Where lengths simply vary, there are no kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from findwall.model.catalogue import FAIR_PART
from findwall.model.kinds import FEWEST_HITS, RARE_SHARE, USUAL, even_distance

# All of these are chosen by hand, not calibrated.
STANDS_OUT_RATIO = 1.0 + FAIR_PART  # times the usual step
STANDS_OUT_NOISES = 8  # and so many median deviations above it
APART_RATIO = 1.6  # between two steps that stand out, in order of length: more, and they are of two kinds
MATTERS_SHARE = 0.03  # of all the time: a kind that adds less is not told apart
FEWEST_STEPS = 8
FEWEST_FOR_SPREAD = 20  # steps: from fewer, how much they vary or what comes seldom is chance


@dataclass(frozen=True, slots=True)
class Kind:
    """Steps that stand out together, by their place among the steps that were looked at."""

    name: str
    rows: tuple[int, ...]
    mean: float  # ns
    excess: float  # of all the time: what they take beyond usual steps
    every: int | None  # one step in so many, where the distances are even

    @property
    def distance(self) -> int | None:
        """How far apart they come, as far as is known; of two that were seen, as far as those were."""
        return self.rows[1] - self.rows[0] if self.every is None and len(self.rows) == 2 else self.every

    def is_due(self, row: int) -> bool:
        """Whether one of this kind should be at this place."""
        return self.distance is not None and (row - self.rows[-1]) % self.distance == 0

    def next_after(self, row: int) -> int | None:
        """The place of the next one that may come, from `row` on; None where nobody can tell."""
        if self.distance is None:
            return None
        behind = max(row - self.rows[-1], 1)
        return self.rows[-1] + -(-behind // self.distance) * self.distance


def find_kinds(times: Sequence[int]) -> list[Kind]:
    """The kinds beside the usual one, the shortest first; none where steps are alike or merely vary."""
    count, total = len(times), sum(times)
    if count < FEWEST_STEPS or total <= 0:
        return []
    usual = median(times)
    noise = median(abs(value - usual) for value in times)
    least = max(STANDS_OUT_RATIO * usual, usual + STANDS_OUT_NOISES * noise)
    standing_out = sorted((row for row in range(count) if times[row] > least), key=lambda row: times[row])
    found: list[Kind] = []
    for group in reversed(_groups(times, standing_out)):
        # A step that saves also logs: the longer kinds come where a shorter one was due.
        longer = [row for kind in found for row in kind.rows]
        kind = _kind(times, sorted(group), sorted([*group, *longer]), usual, total)
        if kind is not None:
            found.append(kind)
    found.reverse()
    names = ["slow"] if len(found) == 1 else [f"slow-{number}" for number in range(1, len(found) + 1)]
    return [
        Kind(name, kind.rows, kind.mean, kind.excess, kind.every)
        for name, kind in zip(names, found, strict=True)
    ]


def labels(kinds: Sequence[Kind], count: int) -> list[str]:
    """The kind of each step by name; nothing where all are usual."""
    if not kinds:
        return []
    found = [USUAL] * count
    for kind in kinds:
        for row in kind.rows:
            found[row] = kind.name
    return found


def _groups(times: Sequence[int], rows: Sequence[int]) -> list[list[int]]:
    """Rows in order of their times, parted where the next is much longer."""
    groups: list[list[int]] = [[]] if rows else []
    for before, row in zip([rows[0], *rows] if rows else [], rows, strict=False):
        if times[row] > APART_RATIO * times[before]:
            groups.append([])
        groups[-1].append(row)
    return groups


def _kind(times: Sequence[int], rows: list[int], due: list[int], usual: float, total: int) -> Kind | None:
    excess = sum(times[row] - usual for row in rows) / total
    every = even_distance(due)
    if excess < MATTERS_SHARE or (every is None and len(due) > RARE_SHARE * len(times)):
        return None
    return Kind("", tuple(rows), sum(times[row] for row in rows) / len(rows), excess, every)


@dataclass(frozen=True, slots=True)
class Window:
    """The steps to be traced: from the place of the first, so many."""

    first: int
    steps: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a window may take."""

    steps: int
    latest: int  # place of the last step that is waited for
    ns: float
    usual_ns: float


def plan_window(kinds: Sequence[Kind], earliest: int, usual_steps: int, limits: Limits) -> Window:
    """A run of steps with one of every kind that can be foreseen, or of the usual ones alone.

    The last traced step is never counted, and a step of a kind is worth little without its neighbours: one
    before it and two behind are traced with it. What would not fit, or comes too late, is left out, the least
    important kind first.
    """
    wanted = sorted((kind for kind in kinds if kind.distance is not None), key=lambda kind: kind.excess)
    while wanted:
        rarest = max(wanted, key=lambda kind: kind.distance or 0)
        there = rarest.next_after(earliest + 1)
        assert there is not None
        places = [there, *(_nearest(kind, there, earliest + 1) for kind in wanted if kind is not rarest)]
        first = min(places) - 1
        steps = max(max(places) + 3 - first, usual_steps)
        takes = steps * limits.usual_ns + sum(kind.mean for kind in wanted)
        if steps <= limits.steps and max(places) <= limits.latest and takes <= limits.ns:
            return Window(first, steps)
        wanted.pop(0)
    return Window(earliest, usual_steps)


def _nearest(kind: Kind, there: int, earliest: int) -> int:
    """The place of this kind's step nearest to another one's; where both are due, the longer kind comes."""
    after = kind.next_after(there + 1)
    assert after is not None and kind.distance is not None
    before = after - kind.distance
    before -= kind.distance if before == there else 0
    return before if earliest <= before and there - before <= after - there else after


def told_by(times: Sequence[int]) -> list[Kind] | None:
    """The kinds, if more steps would tell nothing new of them; None while some that stand out are too few."""
    found = find_kinds(times)
    seen = [kind for kind in found if kind.every is None and len(kind.rows) < FEWEST_HITS]
    return None if seen else found
