"""Loops of the job's own lines, and whether one round needs another.

A line that the job comes to again and again within a step begins the rounds of a loop. What a round calls
lies between two visits; where a visit is followed by lines that most rounds do not have, the loop was left.
Rounds are independent where none reads what another made. A sum over rounds is no such reading, nor are
places of one tensor that each round fills, as long as nobody looks at it before the last one: rounds of a
batch add up as well, and fill all places at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np

from findwall.dataflow.linking import LIFTS, Flow, iterations, of_ours, rows_under
from findwall.dataflow.usefulness import ACCUMULATES, taken_by_host
from findwall.model.catalogue import FEWEST_REPEATS, MAJORITY_SHARE
from findwall.model.dataflow import LINE, STATE
from findwall.model.intervals import I64

# What adds up over rounds, one tensor or a list of them at a time, in place or not.
_ADDS = ("add", "sub", "addcmul", "maximum", "minimum")
_SUMS = frozenset(
    {"aten::cat", *(f"aten::{a}{one}{b}" for one in _ADDS for a in ("", "_foreach_") for b in ("", "_"))}
)


# What fills places of a tensor that stays otherwise as it is.
_PUTS = frozenset(f"aten::{name}_" for name in ("index_put", "index_copy", "scatter", "masked_scatter"))


class Rounds(msgspec.Struct, frozen=True):
    """One loop in one iteration, its rounds one behind the other."""

    line: int  # into the names of what was observed
    begins: list[int]  # rows; the last one is where the last round ends
    count: int  # of those that call an op
    parameters: bool  # each round changes a parameter of its own
    unseen: bool  # the host takes what a round made, and hands tensors to later ones: nobody sees what it did

    def round_of(self, rows: int) -> I64:
        """For each row of what was observed the number of its round; -1 outside of the loop."""
        found = np.full(rows, -1, np.int64)
        for number, (begin, end) in enumerate(pairwise(self.begins)):
            found[begin:end] = number
        return found


def line_loops(flow: Flow, among: list[int] | None = None) -> list[Rounds]:
    """Those of some iterations, or of all but the last, whose rounds are independent; none lies within
    another, the outer ones first. A loop that the host may have a part in comes behind those within it."""
    observed = flow.observed
    number = iterations(observed)
    found: list[Rounds] = []
    taken = np.zeros(len(observed), bool)
    judge = _Judge(flow)
    unsure: list[Rounds] = []
    for one in range(max(int(number.max(initial=0)), 1)) if among is None else among:
        marks = _marks(flow, np.flatnonzero(number == one))
        for line, begins in _candidates(marks):
            inside = slice(begins[0], begins[-1])
            rounds = judge.told(line, begins) if not taken[inside].any() else None
            if rounds is not None:
                (unsure if rounds.unseen else found).append(rounds)
                taken[inside] |= not rounds.unseen
    for rounds in unsure:
        inside = slice(rounds.begins[0], rounds.begins[-1])
        if not taken[inside].any():
            taken[inside] = True
            found.append(rounds)
    return found


class _Marks(msgspec.Struct, frozen=True):
    """Lines as the job came to them."""

    row: list[int]
    line: list[int]
    end: int  # the row behind the last one


def _marks(flow: Flow, rows: I64) -> _Marks:
    observed = flow.observed
    is_line = np.array([name.startswith(LINE) for name in observed.names], bool)
    found = rows[is_line[observed.name[rows]]]
    if len(found):  # of the thread that the job's loop runs on
        found = found[observed.thread[found] == observed.thread[found[0]]]
    return _Marks(found.tolist(), observed.name[found].tolist(), int(rows[-1]) + 1 if len(rows) else 0)


def _candidates(marks: _Marks) -> Iterator[tuple[int, list[int]]]:
    """Lines that come again often enough, and where each round begins; the earliest first."""
    visits: dict[int, list[int]] = {}
    for at, line in enumerate(marks.line):
        visits.setdefault(line, []).append(at)
    often = [line for line, at in visits.items() if len(at) >= FEWEST_REPEATS]
    for line in sorted(often, key=lambda line: visits[line][0]):
        for run in _runs(marks, visits[line]):
            yield line, run


def _runs(marks: _Marks, visits: list[int]) -> Iterator[list[int]]:
    """Rows at which rounds begin, and the end of the last, for each time that the loop is gone through."""
    ends = [*visits[1:], len(marks.line)]
    stretches = [marks.line[first:end] for first, end in zip(visits, ends, strict=True)]
    seen = Counter(line for stretch in stretches for line in set(stretch))
    usual = {line for line, count in seen.items() if count > MAJORITY_SHARE * len(stretches)}
    run: list[int] = []
    for first, stretch in zip(visits, stretches, strict=True):
        run.append(marks.row[first])
        left = next((at for at, line in enumerate(stretch) if line not in usual), None)
        if left is not None or first == visits[-1]:
            end = first + (len(stretch) if left is None else left)
            run.append(marks.row[end] if end < len(marks.row) else marks.end)
            if len(run) > FEWEST_REPEATS:
                yield run
            run = []


class _Judge:
    """What rounds do to each other."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        observed = flow.observed
        names = [observed.names[name] for name in observed.name.tolist()]
        sums = rows_under(observed, ACCUMULATES)
        self._ours = set(of_ours(observed).tolist())
        self._adds = np.array([name in _SUMS | _PUTS or row in sums for row, name in enumerate(names)], bool)
        told = np.isin(flow.reader, list(rows_under(observed, STATE)))
        self._state = np.isin(flow.written, np.unique(flow.storage[told]))
        lifts = np.array([name.startswith(LIFTS) for name in names], bool)
        several = np.array([bool(one.dims) for one in observed.regions], bool)[observed.region]
        self._given = np.intersect1d(np.flatnonzero(lifts), observed.op[several])
        self._taken = np.isin(flow.reader, taken_by_host(observed)) & (flow.writer >= 0)
        head = flow.head
        self._unit = np.where(head >= 0, head, np.arange(len(head)))

    def told(self, line: int, begins: list[int]) -> Rounds | None:
        """None where too few rounds call an op, or one needs another. What is said on the line of a
        comprehension puts its results together: `torch.stack([f(x) for x in xs])`."""
        return self._told(line, begins) or self._told(line, begins[:-1])

    def _told(self, line: int, begins: list[int]) -> Rounds | None:
        flow, count = self._flow, len(begins) - 1
        rounds = Rounds(line, begins, count, False, False).round_of(len(flow.observed))
        heads = flow.heads()
        heads = heads[rounds[heads] >= 0]
        heads = np.array([head for head in heads.tolist() if head not in self._ours], np.int64)
        # The last visit may be the one that ends the loop.
        last = int(rounds[heads].max(initial=-1))
        full = len(np.unique(rounds[heads]))
        if full < FEWEST_REPEATS or full <= MAJORITY_SHARE * count:
            return None
        if not self._is_independent(rounds):
            return None
        return Rounds(
            line=line,
            begins=begins[: last + 2],
            count=full,
            parameters=self._changes_parameters(rounds, last + 1),
            unseen=self._goes_through_the_host(rounds),
        )

    def _is_independent(self, rounds: I64) -> bool:
        flow = self._flow
        seen = flow.writer >= 0
        writer, reader = self._unit[flow.writer[seen]], self._unit[flow.reader[seen]]
        inside = (rounds[writer] >= 0) & (rounds[reader] >= 0)
        views = ~np.isin(reader, self._unit[flow.wrote])
        crosses = inside & (rounds[writer] != rounds[reader]) & ~views
        if (crosses & ~self._adds[reader]).any():
            return False
        sums = np.unique(reader[crosses])
        looked_at = inside & np.isin(writer, sums) & ~self._adds[reader] & ~views
        return not looked_at.any()

    def _goes_through_the_host(self, rounds: I64) -> bool:
        """Whether a round made what the host takes before it hands a later one a tensor."""
        flow = self._flow
        takes = self._taken & (rounds[flow.writer] >= 0)
        first = int(rounds[flow.writer[takes]].min()) if takes.any() else len(rounds)
        return bool((rounds[self._given] > first).any())

    def _changes_parameters(self, rounds: I64, count: int) -> bool:
        """Whether most rounds change a parameter, no two the same."""
        flow = self._flow
        inside = self._state & (rounds[flow.wrote] >= 0)
        by_storage: dict[int, set[int]] = {}
        for row, storage in zip(flow.wrote[inside].tolist(), flow.written[inside].tolist(), strict=True):
            by_storage.setdefault(storage, set()).add(int(rounds[row]))
        alone = {next(iter(mine)) for mine in by_storage.values() if len(mine) == 1}
        return len(alone) > MAJORITY_SHARE * count and all(len(mine) == 1 for mine in by_storage.values())
