"""Rows that an earlier pass has computed already: a model that is called again with one token more.

What is fed to a model is put together of what was fed to it before and something new, or is more of a buffer
that was filled further. Ops that work row by row give the old rows their old results; so does attention that
looks back only. All of that was there, had somebody kept it: of such a pass only the new rows are work.
"""

from __future__ import annotations

import math

import numpy as np

from findwall.dataflow.linking import Flow, in_backward, judged, meet
from findwall.dataflow.row_ops import ALL, BY_CHANCE, PRODUCTS, Operand, RowOps, elements
from findwall.model.dataflow import Region
from findwall.model.intervals import F64

_ATTENTION = "scaled_dot_product_attention"
_LOOKS_BACK = 5  # its argument that says so
_MASKED = 4  # operands, where it was given a mask
_MASKS = ("masked_fill", "masked_fill_", "where")
_BY_HAND = ("matmul", "bmm")  # every row with every other


def new_rows(flow: Flow) -> tuple[F64, dict[int, int]]:
    """For each row of what was observed, of its outermost op's work the share that is for new rows; and for
    those with a share under 1 the op that put old and new together."""
    return _Grown(flow).found()


class _Grown(RowOps):
    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self._new = np.full(len(flow.observed), ALL)
        self._by: dict[int, int] = {}
        self._other: set[int] = set()  # ops that make something else of such rows

    def found(self) -> tuple[F64, dict[int, int]]:
        backward = in_backward(self._observed)
        if backward.any():
            return self._new, self._by  # it trains: nothing is called token by token
        fed = {head: (by, self._new_part(by)) for head, by in self._fed().items()} | self._read_further()
        for head in judged(self._flow).tolist():
            if head in fed:
                self._by[head], self._new[head] = fed[head]
            elif not self._is_cat(head):
                self._follow(head)
        self._drop_what_looks_ahead()
        return self._new, self._by

    def _new_part(self, by: int) -> float:
        parts = self.operands(by)
        return 1.0 - parts[0].elements / sum(part.elements for part in parts)

    def _is_cat(self, head: int) -> bool:
        return self.name(head) == "cat"

    def _fed(self) -> dict[int, int]:
        """The ops that read what was put together, as they read the old part of it before."""
        readers = self._readers()
        storage_of = dict(zip(self._flow.use.tolist(), self._flow.storage.tolist(), strict=True))
        made = {
            int(self._flow.head[row]): storage
            for row, storage in zip(self._flow.wrote.tolist(), self._flow.written.tolist(), strict=True)
        }
        found: dict[int, int] = {}
        for head in self._flow.heads().tolist():
            parts = self.operands(head) if self._is_cat(head) else []
            if not parts or parts[0].elements <= sum(part.elements for part in parts[1:]):
                continue  # what is old is the most of it
            before = {self._called(one) for one in readers.get(storage_of.get(parts[0].use, -1), ())}
            for one in readers.get(made.get(head, -1), ()):
                if one > head and self._called(one) in before and not self._is_cat(one):
                    found[one] = head
        return found

    def _read_further(self) -> dict[int, tuple[int, float]]:
        """The ops that read more of a buffer than they did before, where what they read then is as it was:
        all that was written meanwhile lies behind it. With who wrote that, and the share that is new."""
        found: dict[int, tuple[int, float]] = {}
        storage_of = dict(zip(self._flow.use.tolist(), self._flow.storage.tolist(), strict=True))
        writes, read = self._writes(), dict[tuple[int, ...], tuple[int, Operand]]()
        for head in self._flow.heads().tolist():
            for at, operand in enumerate(self.operands(head)):
                storage = storage_of.get(operand.use, -1)
                key = (*self._called(head), at, storage)
                before, was = read.get(key, (-1, operand))
                read[key] = (head, operand)
                if before < 0 or not _is_longer(operand.region, was.region):
                    continue
                between = [(row, region) for row, region in writes.get(storage, ()) if before < row < head]
                if between and not any(meet(region, was.region) for _, region in between):
                    by = int(self._flow.head[between[-1][0]])
                    found[head] = by, 1.0 - elements(was.region) / elements(operand.region)
        return found

    def _writes(self) -> dict[int, list[tuple[int, Region]]]:
        """By storage the rows that wrote to it, and where."""
        flow, observed, found = self._flow, self._observed, dict[int, list[tuple[int, Region]]]()
        rows = zip(flow.wrote.tolist(), flow.written.tolist(), flow.place.tolist(), strict=True)
        for row, storage, place in rows:
            region = observed.regions[int(observed.region[observed.uses_of(row).start + place])]
            found.setdefault(storage, []).append((row, region))
        return found

    def _readers(self) -> dict[int, list[int]]:
        """The outermost ops that read each storage."""
        flow, found = self._flow, dict[int, list[int]]()
        for reader, storage in zip(flow.reader.tolist(), flow.storage.tolist(), strict=True):
            if flow.head[reader] == reader:
                found.setdefault(storage, []).append(reader)
        return found

    def _called(self, head: int) -> tuple[int, int]:
        return int(self._observed.name[head]), int(self._observed.line[head])

    def _follow(self, head: int) -> None:
        """Old rows stay old through what works row by row, and through attention that looks back only."""
        operands, name = self.operands(head), self.name(head)
        old = [one for one in operands if self._is_old(one)]
        if any(self._writer(one) in self._by or self._writer(one) in self._other for one in operands):
            self._other.add(head)  # until it is known to be none
        if not old or name in BY_CHANCE:
            return
        if name == _ATTENTION:
            given = self.given(head)
            back = len(given) > _LOOKS_BACK and given[_LOOKS_BACK] is True
            if len(old) < 3 or not (back or len(operands) >= _MASKED):
                return
        elif not (name in _BY_HAND and len(old) == 2) and not (
            self.is_by_rows(head) and self._has_old_rows(head, operands, old)
        ):
            return
        self._other.discard(head)
        self._by[head] = self._by[self._writer(old[0])]
        self._new[head] = min(self._new[self._writer(one)] for one in old)

    def _drop_what_looks_ahead(self) -> None:
        """Attention by hand without a mask gives old rows new results: nothing of such a pass is said."""
        by_hand, masked = set[int](), set[int]()
        for head, by in self._by.items():
            old = [one for one in self.operands(head) if self._is_old(one)]
            if self.name(head) in _BY_HAND and len(old) == 2:
                by_hand.add(by)
            if self.name(head) in _MASKS:
                masked.add(by)
        for head in [head for head, by in self._by.items() if by in by_hand - masked]:
            del self._by[head]
            self._new[head] = ALL

    def _writer(self, operand: Operand) -> int:
        return self.writer_of.get(operand.use, -1)

    def _is_old(self, operand: Operand) -> bool:
        """Whether its rows, all that were written, are those of an earlier pass and the new ones."""
        writer = self._writer(operand)
        made = self.result(writer) if writer in self._by else None
        return made is not None and _has_all_rows(operand.region, made)

    def _has_old_rows(self, head: int, operands: list[Operand], old: list[Operand]) -> bool:
        rows = [operands[at] for at in self.row_operands(head, operands)]
        if self.name(head) in PRODUCTS:
            return rows[0] in old
        return all(one in old or self._writer(one) not in self._other for one in rows)


def _is_longer(now: Region, before: Region) -> bool:
    """Whether it begins where that began, and goes further in one dimension alone."""
    if (now.first, now.width, len(now.dims)) != (before.first, before.width, len(before.dims)):
        return False
    pairs = list(zip(now.dims, before.dims, strict=True))
    longer = [one for one, other in pairs if one != other]
    return len(longer) == 1 and all(one[0] == other[0] and one[1] >= other[1] for one, other in pairs)


def _has_all_rows(part: Region, whole: Region) -> bool:
    """Whether a part has all of a whole, or something of each of its rows."""
    row = whole.dims[-1][1] if whole.dims and whole.dims[-1][0] == whole.width else 1
    touched = math.prod(length for stride, length in part.dims if stride >= row * whole.width)
    return elements(part) == elements(whole) or touched * row == elements(whole)
