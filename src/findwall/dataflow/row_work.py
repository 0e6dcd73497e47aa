"""Rows that are worked on for nothing: thrown away behind the work, or copies of one another before it.

Much of a model works row by row: a layer, a norm, an activation gives each row its result whatever the other
rows are. Such work can change places with what picks rows. Where rows are picked behind it (the last token's
scores, the masked places, one token of the last layer), it was done for all the others in vain. Where rows
are repeated before it (the nodes of every edge, a vector for every token of its sample), each is worked on
as often as it is repeated. So work that is done row by row belongs where there are fewer rows.
"""

from __future__ import annotations

import math
from functools import cached_property

import msgspec
import numpy as np

from findwall.dataflow.linking import Flow, in_backward, judged, of_ours
from findwall.dataflow.row_ops import (
    ALL,
    ATTENTION,
    BY_CHANCE,
    COPIES,
    NORMS,
    PRODUCTS,
    REPEATS,
    Operand,
    RowOps,
    Shape,
    elements,
)
from findwall.model.dataflow import MAKE, Region
from findwall.model.events import Bool
from findwall.model.intervals import F64

# A number of a product that is made alone reads a row and a column for itself, 8 bytes for 2 FLOPs: so many
# times what it takes among the others, where a device does 16 FLOPs while it moves a byte. Chosen by hand.
ALONE = 64.0


class RowWork(msgspec.Struct, frozen=True):
    """A share for each row of what was observed: of the work of its outermost op, what would be left."""

    needed: F64  # behind it, rows are thrown away
    distinct: F64  # before it, rows were repeated
    near: Bool  # no other product lies between its outermost op and the one that picks the rows
    # For an outermost op whose rows would be picked right before it: bytes that picking moves, which may be
    # more than what it saves. What never changes may be picked once, before the loop.
    moved: dict[int, float]
    picks: dict[int, int]  # for an outermost op with a share under 1, the one that picks or repeats its rows
    # For an outermost op that picks what is left of work by places: its share. Its gradient need not be as
    # large as all places are.
    refills: dict[int, float]
    repeaters: frozenset[int]  # outermost ops that repeat rows
    # For one that repeats rows before such work, or puts them side by side: the numbers that it would carry
    # behind the work, for each that it carries before it.
    carried: dict[int, float]


def row_work(flow: Flow) -> RowWork:
    return _Rows(flow).found()


class _Rows(RowOps):
    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._backward = in_backward(flow.observed)
        self._ours = set(of_ours(flow.observed).tolist())
        self._needed = np.full(len(flow.observed), ALL)
        self._distinct = np.full(len(flow.observed), ALL)
        self._between = np.zeros(len(flow.observed), np.int64)  # products up to what picks
        self._of_several: set[int] = set()  # products whose rows were put together of repeated parts
        self._picks: dict[int, int] = {}
        self._places: dict[int, Shape] = {}  # of outermost ops, those of which few are needed
        self._refills: dict[int, float] = {}  # for those that pick places
        self._repeaters: set[int] = set()  # those that repeat rows
        self._through: dict[int, set[int]] = {}  # ops that brought repeated rows to an outermost op

    def found(self) -> RowWork:
        heads = judged(self._flow)
        forward = heads[~self._backward[heads]].tolist()
        for head in reversed(forward):
            self._need(head)
        for head in forward:
            if self._needed[head] == ALL:
                self._repeat(head)
        return RowWork(
            self._needed,
            self._distinct,
            self._between == 0,
            self._moved(forward),
            self._picks,
            self._refills,
            frozenset(self._repeaters),
            self._carried(),
        )

    # -- rows that are thrown away behind the work --------------------------------------------------------

    def _moved(self, forward: list[int]) -> dict[int, float]:
        early = [head for head in forward if self._needed[head] < ALL and self._between[head] == 0]
        found: dict[int, float] = {}
        for head in early:
            operands, by = self.operands(head), self._picks.get(head, head)
            copies = by in self.counted or self.picked(by, self.operands(by)) is not None
            if not copies or head == by:
                continue
            if head in self._places:
                rows = self.by_places(head, self._places[head]) or []
            else:
                rows = self.row_operands(head, operands)
            for one in (operands[at] for at in rows):
                if self.writer_of.get(one.use, -1) not in early:  # read and written
                    nbytes = 2.0 * elements(one.region) * one.region.width
                    found[head] = found.get(head, 0.0) + nbytes * float(self._needed[head])
        return found

    def _need(self, head: int) -> None:
        """How much of what it writes anybody reads: all of it, unless it works row by row."""
        if head in self.counted:
            self._needed[head], self._picks[head] = self.counted[head], head
            return
        if head not in self._reads_of or self._need_places(head) or not self.is_by_rows(head):
            return
        # By what picks, which picks the same rows for all who read them, and others than the next that picks;
        # else by the part that is read.
        shares: dict[tuple[int, int], tuple[float, int]] = {}
        for reader, use, written in self._reads_of[head]:
            share, by = self._read_share(reader, use, written)
            passed = self._between[reader] + (self.name(reader) in PRODUCTS) if by != reader else 0
            picks = by != reader or self.picked(reader, self.operands(reader)) is not None
            key = (by, -1) if picks else (-1, int(self._observed.region[use]))
            known = shares.get(key, (0.0, 0))
            shares[key] = max(known[0], share), max(known[1], int(passed))
            self._picks.setdefault(head, by)
        needed = sum(share for share, _ in shares.values())
        if needed < ALL:
            self._needed[head] = needed
            self._between[head] = max(passed for _, passed in shares.values())

    def _need_places(self, head: int) -> bool:
        """Whether all who read what it writes take few places of it, or work place by place for those who
        do: then it need not be done for the others."""
        shares: dict[int, tuple[float, int]] = {}  # by what picks
        places: set[Shape] = set()
        for reader, use, written in self._reads_of[head]:
            operands = self.operands(reader)
            place = next((at for at, one in enumerate(operands) if one.use == use), -1)
            whole = place >= 0 and operands[place].region == written
            if reader in self._ours or not whole:
                return False
            picked, by, passed = self.places_picked(reader) if place == 0 else (), reader, 0
            if picked:
                share = self.made(reader) / max(operands[0].elements, 1)
            elif reader in self._places and place in (self.by_places(reader, self._places[reader]) or ()):
                picked, share = self._places[reader], float(self._needed[reader])
                by = self._picks[reader]
                passed = int(self._between[reader]) + (self.name(reader) in PRODUCTS)
            else:
                return False
            if elements(written) % math.prod(picked):
                return False  # of what was made some numbers stand in several places
            places.add(picked)
            known = shares.get(by, (0.0, 0))
            shares[by] = max(known[0], share), max(known[1], passed)
        needed = sum(share for share, _ in shares.values())
        placed = self.by_places(head, next(iter(places))) if len(places) == 1 else None
        if placed is None or needed * (ALL if placed else ALONE) >= ALL:
            return False
        by = max(shares, key=lambda by: shares[by][0])
        self._needed[head], self._places[head] = needed * (ALL if placed else ALONE), places.pop()
        self._picks[head], self._refills[by] = by, needed
        self._between[head] = max(passed for _, passed in shares.values())
        return True

    def _read_share(self, reader: int, use: int, written: Region) -> tuple[float, int]:
        """Of the rows that were written, those that a reader needs; and the op that picks them."""
        read = self._observed.regions[int(self._observed.region[use])]
        if reader in self._ours:
            return ALL, reader
        share = share_of_rows(read, written)
        operands = self.operands(reader)
        place = next((at for at, one in enumerate(operands) if one.use == use), -1)
        if place < 0:
            return share, reader
        if place == 0 and (picked := self.picked(reader, operands)) is not None:
            return share * min(picked, ALL), reader
        is_loss = reader in self.counted and place == 0
        if is_loss or (self.is_by_rows(reader) and place in self.row_operands(reader, operands)):
            if share == ALL:
                return float(self._needed[reader]), self._picks.get(reader, reader)
            return share * self._needed[reader], reader
        return share, reader

    # -- rows that were repeated before it ----------------------------------------------------------------

    def _repeat(self, head: int) -> None:
        """Of its rows, those that differ: as in what it reads, if it works row by row."""
        operands = self.operands(head)
        if not operands:
            return
        picked = self.picked(head, operands)
        name = self.name(head)
        if picked is not None:
            share = self._told(operands[0])[0] / max(picked, ALL)
            if share < ALL:
                self._repeats_by(head, share)
            return
        if name in REPEATS and self._repeats_rows(head, operands[0]):
            self._repeats_by(head, elements(operands[0].region) / max(self.made(head), 1))
            return
        if name == "bmm":
            self._of_picked_matrices(head, operands)
        if not self.is_by_rows(head) or name in BY_CHANCE | ATTENTION:
            return
        rows = [operands[at] for at in self.row_operands(head, operands)]
        others = [one for one in operands if one not in rows]
        if not rows or not all(is_for_all_rows(one, name) for one in others):
            return
        if name in COPIES and self.row_made(head) > rows[0].row:
            return  # it puts rows together
        share, by = self._of_one_pick(rows) if name not in PRODUCTS else self._of_parts(head, rows[0])
        if share < ALL:
            self._distinct[head], self._picks[head] = share, by if by >= 0 else head
            before = self.writer_of.get(rows[0].use, -1)
            self._through.setdefault(head, set()).update(self._brought(before))
            self._between[head] = (
                self._between[before] + (self.name(before) in PRODUCTS) if before >= 0 else 0
            )

    def _repeats_by(self, head: int, share: float) -> None:
        self._distinct[head], self._picks[head] = share, head
        self._repeaters.add(head)

    def _brought(self, before: int) -> set[int]:
        """What repeated the rows that an op wrote, itself among them, and what put them side by side."""
        own = {before} if before in self._repeaters else set()
        return own | self._through.get(before, set())

    def _carried(self) -> dict[int, float]:
        """Behind the work rows are as wide as what it makes of them: for whoever reads that and works on
        rows that differ."""
        found: dict[int, float] = {}
        for head, through in self._through.items():
            readers = {reader for reader, _, _ in self._reads_of.get(head, [])}
            if readers and all(self._distinct[reader] < ALL for reader in readers):
                continue
            for op in through:
                found[op] = found.get(op, 0.0) + self.made(head) / max(self.made(op), 1)
        return found

    def _of_picked_matrices(self, head: int, operands: list[Operand]) -> None:
        """Rows and matrices that were both picked by number, one of each for every product: each row that
        there is with each matrix that there is are far fewer numbers, and the matrices need no copies."""
        if len(operands) != 2 or any(len(one.shape) != 3 for one in operands):
            return
        (rows, _), (matrices, by) = self._told(operands[0]), self._told(operands[1])
        products, inner = operands[0].shape[0], operands[0].shape[2]
        left = rows * matrices * products / inner
        if matrices < ALL and by >= 0 and left < ALL:
            self._distinct[head] = self._distinct[by] = left
            self._picks[head], self._picks[by] = by, head

    def _repeats_rows(self, head: int, operand: Operand) -> bool:
        """Whether its result has more rows than there are in memory to read, each of them whole."""
        made = self.result(head)
        if made is None or not operand.shape or elements(made) <= elements(operand.region):
            return False
        row = operand.shape[-1]
        is_whole = operand.distinct < ALL or operand.elements == elements(operand.region)
        return is_whole and row > 1 and made.dims[-1:] == ((made.width, row),)

    def _told(self, operand: Operand) -> tuple[float, int]:
        """Of an operand's rows, those that differ, and the op that repeats them."""
        by = self.writer_of.get(operand.use, -1)
        if operand.distinct < ALL:
            return operand.distinct, -1
        if by < 0 or by in self._of_several:
            return ALL, -1
        if self.row_made(by) < operand.row:
            return ALL, -1  # of rows that are repeated, side by side, every set may differ
        return float(self._distinct[by]), self._picks.get(by, -1)

    def _of_one_pick(self, rows: list[Operand]) -> tuple[float, int]:
        """Where all operands were repeated by the same op; of two that were not, every pair may differ."""
        told = {self._told(one) for one in rows}
        return told.pop() if len(told) == 1 else (ALL, -1)

    def _of_parts(self, head: int, rows: Operand) -> tuple[float, int]:
        """A product takes parts that were put side by side one by one: each part of the weights its own."""
        by = self.writer_of.get(rows.use, -1)
        if by < 0 or self.name(by) != "cat":
            share, by = self._told(rows)
            return (share, by) if self._is_within(head, by) else (ALL, -1)
        parts = self.operands(by)
        if any(part.shape[:-1] != parts[0].shape[:-1] for part in parts) or len(parts) < 2:
            return ALL, -1
        if sum(part.shape[-1] for part in parts) != rows.shape[-1]:
            return ALL, -1
        told = [self._told(part) for part in parts]
        if not all(self._is_within(head, repeater) for _, repeater in told):
            return ALL, -1
        share = sum(one * part.shape[-1] for (one, _), part in zip(told, parts, strict=True)) / rows.shape[-1]
        if share == ALL:
            return ALL, -1
        self._of_several.add(head)
        brought = [self._brought(self.writer_of.get(part.use, -1)) for part in parts]
        self._through[head] = {by}.union(*brought)
        return share, min(told)[1]

    def _is_within(self, head: int, by: int) -> bool:
        """Whether rows were repeated inside each batch of a product, which has a matrix of its own."""
        batches = self.batches(head)
        return not batches or (by >= 0 and self.operands(by)[0].shape[: len(batches)] == batches)

    @cached_property
    def _reads_of(self) -> dict[int, list[tuple[int, int, Region]]]:
        """Who reads what each outermost op makes: the reader, its use, and the region that was written. Not
        there for ops that change what others made, or whose results nobody reads: nothing is said of them.
        Views read nothing; what the backward pass reads goes with the forward pass."""
        flow, observed = self._flow, self._observed
        writes = {
            (row, storage): observed.regions[int(observed.region[observed.uses_of(row).start + place])]
            for row, storage, place in zip(
                flow.wrote.tolist(), flow.written.tolist(), flow.place.tolist(), strict=True
            )
        }
        is_view = self._views
        found: dict[int, list[tuple[int, int, Region]]] = {}
        links = zip(
            flow.writer.tolist(), flow.reader.tolist(), flow.use.tolist(), flow.storage.tolist(), strict=True
        )
        for writer, reader, use, storage in links:
            # What runs inside an op is one with it; what is no op at all, as a compiled region, reads too.
            mine = reader in self._ours or flow.head[reader] in (reader, -1)
            if writer < 0 or not mine or (is_view[reader] and reader not in self._ours):
                continue
            if self._backward[reader]:
                continue
            head, region = int(flow.head[writer]), writes.get((writer, storage))
            if head >= 0 and head != reader and region is not None:
                found.setdefault(head, []).append((reader, use, region))
        return found

    @cached_property
    def _views(self) -> Bool:
        """Ops that hand on what they were given."""
        makes = np.zeros(len(self._observed), bool)
        makes[self._observed.op[self._observed.way == MAKE]] = True
        writes = self._flow.head[self._flow.wrote]
        makes[writes[writes >= 0]] = False
        return makes


def share_of_rows(read: Region, written: Region) -> float:
    """Of the rows that were written, those that a part of them has numbers of; all, where that is hard to
    say."""
    row = written.dims[-1][1] if written.dims and written.dims[-1][0] == written.width else 1
    length = row * written.width
    inside = read.width + sum((count - 1) * stride for stride, count in read.dims if stride < length)
    if (read.first - written.first) % length + inside <= length:  # within one row, over and over
        steps = [(stride, count) for stride, count in read.dims if stride >= length]
        if any(stride % length for stride, _ in steps):
            return ALL
        return min(math.prod(count for _, count in steps) * row / max(elements(written), 1), ALL)
    run, reached = 1, read.width  # or several in one piece
    for stride, count in reversed(read.dims):
        if stride != reached:
            break
        run *= count
        reached = stride * count
    return min(elements(read) / max(elements(written), 1), ALL) if run >= row else ALL


def is_for_all_rows(operand: Operand, name: str) -> bool:
    """Whether every row meets the same numbers of it: weights, a bias."""
    return name in PRODUCTS or name in NORMS or math.prod(operand.shape[:-1]) == 1
