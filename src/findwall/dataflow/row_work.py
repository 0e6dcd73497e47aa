"""Rows that are worked on for nothing: thrown away behind the work, or copies of one another before it.

Much of a model works row by row: a layer, a norm, an activation gives each row its result whatever the other
rows are. Such work can change places with what picks rows. Where rows are picked behind it (the last token's
scores, the masked places, one token of the last layer), it was done for all the others in vain. Where rows
are repeated before it (the nodes of every edge, a vector for every token of its sample), each is worked on
as often as it is repeated. So work that is done row by row belongs where there are fewer rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from findwall.dataflow.linking import Flow, in_backward, judged, of_ours
from findwall.model.dataflow import CHANGE, MAKE, READ, TARGETS, Region
from findwall.model.events import Bool
from findwall.model.intervals import F64
from findwall.work.op_families.pointwise import OPS as POINTWISE

Shape = tuple[int, ...]

_COPIES = frozenset({"to", "_to_copy", "contiguous", "clone", "reshape", "flatten"})
_NORMS = frozenset({"layer_norm", "rms_norm", "native_layer_norm", "_fused_rms_norm"})
_ALONG_ROWS = frozenset({"softmax", "log_softmax", "_softmax", "_log_softmax"})  # argument 1 says which way
_PRODUCTS = {"linear": 0, "mm": 0, "addmm": 1, "matmul": 0}  # which operand holds the rows
_ATTENTION = frozenset({"scaled_dot_product_attention", "bmm"})  # of the first operand alone
_BY_CHANCE = frozenset({"dropout", "dropout_", "native_dropout", "alpha_dropout", "feature_dropout"})
_LOSSES = frozenset({"cross_entropy_loss", "nll_loss_nd", "nll_loss"})
_PICKS = frozenset({"index", "index_select", "gather", "embedding"})
_REPEATS = frozenset({"repeat", "repeat_interleave", "tile", "contiguous", "clone", "reshape", "expand_copy"})
_ALL = 1.0


class RowWork(msgspec.Struct, frozen=True):
    """A share for each row of what was observed: of the work of its outermost op, what would be left."""

    needed: F64  # behind it, rows are thrown away
    distinct: F64  # before it, rows were repeated
    near: Bool  # no other product lies between its outermost op and the one that picks the rows
    picks: dict[int, int]  # for an outermost op with a share under 1, the one that picks or repeats its rows


class _Operand(msgspec.Struct, frozen=True):
    """A tensor that an op was given."""

    use: int
    shape: Shape
    region: Region

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def distinct(self) -> float:
        """Of its rows, those that lie in memory by themselves; expanded ones are the same bytes."""
        row = self.shape[-1] if self.shape else 1
        if row > 1 and (not self.region.dims or self.region.dims[-1] != (self.region.width, row)):
            return _ALL  # what is repeated is not whole rows
        return _elements(self.region) / max(self.elements, 1)


def row_work(flow: Flow) -> RowWork:
    return _Rows(flow).found()


class _Rows:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._observed = flow.observed
        self._backward = in_backward(flow.observed)
        self._ours = set(of_ours(flow.observed).tolist())
        self._needed = np.full(len(flow.observed), _ALL)
        self._distinct = np.full(len(flow.observed), _ALL)
        self._between = np.zeros(len(flow.observed), np.int64)  # products up to what picks
        self._of_several: set[int] = set()  # products whose rows were put together of repeated parts
        self._picks: dict[int, int] = {}

    def found(self) -> RowWork:
        heads = judged(self._flow)
        forward = heads[~self._backward[heads]].tolist()
        for head in reversed(forward):
            self._need(head)
        for head in forward:
            if self._needed[head] == _ALL:
                self._repeat(head)
        return RowWork(self._needed, self._distinct, self._between == 0, self._picks)

    # -- rows that are thrown away behind the work --------------------------------------------------------

    def _need(self, head: int) -> None:
        """How much of what it writes anybody reads: all of it, unless it works row by row."""
        if head in self._counted:
            self._needed[head], self._picks[head] = self._counted[head], head
            return
        if head not in self._reads_of or not self._is_by_rows(head):
            return
        # By what picks, which picks the same rows for all who read them; else by the part that is read.
        shares: dict[tuple[int, int], tuple[float, int]] = {}
        for reader, use, written in self._reads_of[head]:
            share, by = self._read_share(reader, use, written)
            passed = self._between[reader] + (self._name(reader) in _PRODUCTS) if by != reader else 0
            key = (by, -1) if by != reader else (-1, int(self._observed.region[use]))
            known = shares.get(key, (0.0, 0))
            shares[key] = max(known[0], share), max(known[1], int(passed))
            self._picks.setdefault(head, by)
        needed = sum(share for share, _ in shares.values())
        if needed < _ALL:
            self._needed[head] = needed
            self._between[head] = max(passed for _, passed in shares.values())

    def _read_share(self, reader: int, use: int, written: Region) -> tuple[float, int]:
        """Of the rows that were written, those that a reader needs; and the op that picks them."""
        read = self._observed.regions[int(self._observed.region[use])]
        if reader in self._ours or not _has_whole_rows(read, written):
            return _ALL, reader
        share = min(_elements(read) / max(_elements(written), 1), _ALL)
        operands = self._operands(reader)
        place = next((at for at, one in enumerate(operands) if one.use == use), -1)
        if place < 0:
            return share, reader
        if place == 0 and (picked := self._picked(reader, operands)) is not None:
            return share * min(picked, _ALL), reader
        is_loss = reader in self._counted and place == 0
        if is_loss or (self._is_by_rows(reader) and place in self._row_operands(reader, operands)):
            if share == _ALL:
                return float(self._needed[reader]), self._picks.get(reader, reader)
            return share * self._needed[reader], reader
        return share, reader

    # -- rows that were repeated before it ----------------------------------------------------------------

    def _repeat(self, head: int) -> None:
        """Of its rows, those that differ: as in what it reads, if it works row by row."""
        operands = self._operands(head)
        if not operands:
            return
        picked = self._picked(head, operands)
        name = self._name(head)
        if picked is not None:
            share = self._told(operands[0])[0] / max(picked, _ALL)
            if share < _ALL:
                self._distinct[head], self._picks[head] = share, head
            return
        if name in _REPEATS and self._repeats_rows(head, operands[0]):
            self._distinct[head] = _elements(operands[0].region) / max(self._made(head), 1)
            self._picks[head] = head
            return
        if not self._is_by_rows(head) or name in _BY_CHANCE | _ATTENTION:
            return
        rows = [operands[at] for at in self._row_operands(head, operands)]
        others = [one for one in operands if one not in rows]
        if not rows or not all(_is_for_all_rows(one, name) for one in others):
            return
        share, by = self._of_one_pick(rows) if name not in _PRODUCTS else self._of_parts(head, rows[0])
        if share < _ALL:
            self._distinct[head], self._picks[head] = share, by if by >= 0 else head
            before = self._writer_of.get(rows[0].use, -1)
            self._between[head] = (
                self._between[before] + (self._name(before) in _PRODUCTS) if before >= 0 else 0
            )

    def _repeats_rows(self, head: int, operand: _Operand) -> bool:
        """Whether its result has more rows than there are in memory to read, each of them whole."""
        made = self._result(head)
        if made is None or not operand.shape or _elements(made) <= _elements(operand.region):
            return False
        row = operand.shape[-1]
        is_whole = operand.distinct < _ALL or operand.elements == _elements(operand.region)
        return is_whole and row > 1 and made.dims[-1:] == ((made.width, row),)

    def _told(self, operand: _Operand) -> tuple[float, int]:
        """Of an operand's rows, those that differ, and the op that repeats them."""
        by = self._writer_of.get(operand.use, -1)
        if operand.distinct < _ALL:
            return operand.distinct, -1
        if by < 0 or by in self._of_several:
            return _ALL, -1
        return float(self._distinct[by]), self._picks.get(by, -1)

    def _of_one_pick(self, rows: list[_Operand]) -> tuple[float, int]:
        """Where all operands were repeated by the same op; of two that were not, every pair may differ."""
        told = {self._told(one) for one in rows}
        return told.pop() if len(told) == 1 else (_ALL, -1)

    def _of_parts(self, head: int, rows: _Operand) -> tuple[float, int]:
        """A product takes parts that were put side by side one by one: each part of the weights its own."""
        by = self._writer_of.get(rows.use, -1)
        if by < 0 or self._name(by) != "cat":
            return self._told(rows)
        parts = self._operands(by)
        if any(part.shape[:-1] != parts[0].shape[:-1] for part in parts) or len(parts) < 2:
            return _ALL, -1
        if sum(part.shape[-1] for part in parts) != rows.shape[-1]:
            return _ALL, -1
        told = [self._told(part) for part in parts]
        self._of_several.add(head)
        share = sum(one * part.shape[-1] for (one, _), part in zip(told, parts, strict=True)) / rows.shape[-1]
        return share, min(told)[1]

    # -- what ops do --------------------------------------------------------------------------------------

    def _name(self, head: int) -> str:
        return self._observed.names[int(self._observed.name[head])].removeprefix("aten::")

    def _is_by_rows(self, head: int) -> bool:
        """Whether each row of its first result is made of the same row of its operands."""
        name = self._name(head)
        if name in _PRODUCTS and not self._multiplies_rows(head):
            return False
        if name in _ALONG_ROWS:
            operands, given = self._operands(head), self._given(head)
            way = given[1] if len(given) > 1 else None
            return bool(operands) and way in (-1, len(operands[0].shape) - 1)
        if name in POINTWISE:  # every row with every other of another tensor: those are no rows of either
            return self._made(head) == max((one.elements for one in self._operands(head)), default=0)
        return name in _COPIES | _NORMS | _ATTENTION | _BY_CHANCE or name in _PRODUCTS

    def _multiplies_rows(self, head: int) -> bool:
        """Whether all rows are multiplied by one matrix."""
        operands, rows = self._operands(head), _PRODUCTS[self._name(head)]
        return (
            len(operands) > rows + 1 and len(operands[rows].shape) > 1 and len(operands[rows + 1].shape) == 2
        )

    def _row_operands(self, head: int, operands: list[_Operand]) -> list[int]:
        name = self._name(head)
        if name in _PRODUCTS:
            return [_PRODUCTS[name]] if len(operands) > _PRODUCTS[name] else []
        if name in POINTWISE and operands:
            most = max(one.elements for one in operands)
            return [at for at, one in enumerate(operands) if one.elements == most]
        return [0]

    def _picked(self, head: int, operands: list[_Operand]) -> float | None:
        """Rows that it gives for each one that it is given; None where it picks none, or parts of rows."""
        name = self._name(head)
        if name not in _PICKS or not operands or len(operands[0].shape) < 2:
            return None
        source, given = operands[0], self._given(head)
        if name in ("index_select", "gather"):
            if given[1] in (-1, len(source.shape) - 1):
                return None
        elif name == "index" and _indexed(given[1]) >= len(source.shape):
            return None
        return self._made(head) / max(source.elements, 1)

    @cached_property
    def _counted(self) -> dict[int, float]:
        """For a loss, the share of its targets that count, where that was looked at right before it."""
        observed, found = self._observed, {}
        heads = np.array([head for head in self._flow.heads().tolist() if self._name(head) in _LOSSES])
        for at, name in enumerate(observed.names):
            if name.startswith(TARGETS):
                kept, _, count = name.removeprefix(TARGETS).partition("/")
                for row in np.flatnonzero(observed.name == at).tolist():
                    behind = heads[heads > row]
                    if len(behind):
                        found[int(behind[0])] = int(kept) / max(int(count), 1)
        return found

    def _given(self, head: int) -> list[object]:
        found: list[object] = msgspec.json.decode(self._observed.given[int(self._observed.arguments[head])])
        return found

    def _made(self, head: int) -> int:
        """Numbers in its first result."""
        region = self._result(head)
        return 0 if region is None else _elements(region)

    def _result(self, head: int) -> Region | None:
        observed, uses = self._observed, self._observed.uses_of(head)
        made = [use for use in range(uses.start, uses.stop) if observed.way[use] == MAKE]
        return observed.regions[int(observed.region[made[0]])] if made else None

    def _operands(self, head: int) -> list[_Operand]:
        """Tensors that it was given; none where not all of them were seen."""
        if head not in self._cached:
            uses = self._observed.uses_of(head)
            mine = [use for use in range(uses.start, uses.stop) if self._observed.way[use] in (READ, CHANGE)]
            shapes = list(_shapes(self._given(head)))
            if len(mine) != len(shapes):
                mine, shapes = mine[:1], shapes[:1]  # an index of nothing: `x[:, rows]`
            self._cached[head] = [
                _Operand(use, shape, self._observed.regions[int(self._observed.region[use])])
                for use, shape in zip(mine, shapes, strict=True)
            ]
        return self._cached[head]

    @cached_property
    def _cached(self) -> dict[int, list[_Operand]]:
        return {}

    @cached_property
    def _writer_of(self) -> dict[int, int]:
        """The outermost op that wrote what a use reads, where there is just one."""
        flow = self._flow
        found: dict[int, int] = {}
        for writer, use in zip(flow.writer.tolist(), flow.use.tolist(), strict=True):
            head = int(flow.head[writer]) if writer >= 0 else -1
            found[use] = head if found.get(use, head) == head else -1
        return found

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
            mine = reader in self._ours or flow.head[reader] == reader
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


def _elements(region: Region) -> int:
    return math.prod(length for _, length in region.dims)


def _has_whole_rows(read: Region, written: Region) -> bool:
    """Whether a part holds rows in one piece, not columns of them."""
    row = written.dims[-1][1] if written.dims and written.dims[-1][0] == written.width else 1
    run, reached = 1, read.width
    for stride, length in reversed(read.dims):
        if stride != reached:
            break
        run *= length
        reached = stride * length
    return run >= row


def _is_for_all_rows(operand: _Operand, name: str) -> bool:
    """Whether every row meets the same numbers of it: weights, a bias."""
    return name in _PRODUCTS or name in _NORMS or math.prod(operand.shape[:-1]) == 1


def _shapes(given: list[object]) -> Iterator[Shape]:
    """Of the tensors among what an op was given."""
    for one in given:
        match one:
            case [str(kind), list(shape)] if kind.startswith("Tensor("):
                yield tuple(shape)
            case [str(kind), list(shapes)] if "Tensor(" in kind:
                yield from (tuple(shape) for shape in shapes)


def _indexed(given: object) -> int:
    """How many dimensions an index takes the place of."""
    match given:
        case [str(kind), list(shapes)]:
            types = kind[kind.find("[") + 1 :].split(",")
            return sum(len(shape) if "bool" in one else 1 for one, shape in zip(types, shapes, strict=False))
    return 0
