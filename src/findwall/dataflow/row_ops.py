"""What ops do with rows and places: which work row by row, which pick rows, and what they were given.

A row is what the last dimension holds. A place is what there is for one set of numbers of the first
dimensions: a pixel of an image, a pair of a table of all pairs. Shapes are as the op was given them; a region
says which of the rows lie in memory by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from findwall.dataflow.linking import Flow
from findwall.model.dataflow import CHANGE, MAKE, READ, TARGETS, Region
from findwall.work.op_families.pointwise import OPS as POINTWISE

Shape = tuple[int, ...]

COPIES = frozenset({"to", "_to_copy", "contiguous", "clone", "reshape", "flatten"})
NORMS = frozenset({"layer_norm", "rms_norm", "native_layer_norm", "_fused_rms_norm"})
_ALONG_ROWS = frozenset({"softmax", "log_softmax", "_softmax", "_log_softmax"})  # argument 1 says which way
PRODUCTS = {"linear": 0, "mm": 0, "addmm": 1, "matmul": 0}  # which operand holds the rows
ATTENTION = frozenset({"scaled_dot_product_attention", "bmm"})  # of the first operand alone
BY_CHANCE = frozenset({"dropout", "dropout_", "native_dropout", "alpha_dropout", "feature_dropout"})
_LOSSES = frozenset({"cross_entropy_loss", "nll_loss_nd", "nll_loss"})
_PICKS = frozenset({"index", "index_select", "gather", "embedding"})
# What makes one number of several, and which argument says along which dimensions.
_REDUCES = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "prod": 1, "linalg_vector_norm": 2}
_JOINS = frozenset({"cat", "stack"})
REPEATS = frozenset({"repeat", "repeat_interleave", "tile", "contiguous", "clone", "reshape", "expand_copy"})
ALL = 1.0


class Operand(msgspec.Struct, frozen=True):
    """A tensor that an op was given."""

    use: int
    shape: Shape
    region: Region

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """Numbers in each of its rows."""
        return self.shape[-1] if self.shape else 1

    @property
    def distinct(self) -> float:
        """Of its rows, those that lie in memory by themselves; expanded ones are the same bytes."""
        row = self.row
        if row > 1 and (not self.region.dims or self.region.dims[-1] != (self.region.width, row)):
            return ALL  # what is repeated is not whole rows
        return elements(self.region) / max(self.elements, 1)


class RowOps:
    """The outermost ops of a flow, by their rows."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._observed = flow.observed
        self._cached: dict[int, list[Operand]] = {}

    def name(self, head: int) -> str:
        return self._observed.names[int(self._observed.name[head])].removeprefix("aten::")

    def is_by_rows(self, head: int) -> bool:
        """Whether each row of its first result is made of the same row of its operands."""
        name = self.name(head)
        if name in PRODUCTS and not self._multiplies_rows(head):
            return False
        if name in _ALONG_ROWS:
            operands, given = self.operands(head), self.given(head)
            way = given[1] if len(given) > 1 else None
            return bool(operands) and way in (-1, len(operands[0].shape) - 1)
        if name in POINTWISE:  # every row with every other of another tensor: those are no rows of either
            return self.made(head) == max((one.elements for one in self.operands(head)), default=0)
        return name in COPIES | NORMS | ATTENTION | BY_CHANCE or name in PRODUCTS

    def _multiplies_rows(self, head: int) -> bool:
        """Whether all rows are multiplied by one matrix, or those of each batch by its own."""
        operands, at = self.operands(head), PRODUCTS[self.name(head)]
        if len(operands) <= at + 1 or len(operands[at].shape) < 2:
            return False
        rows, matrix = operands[at].shape, operands[at + 1].shape
        return len(matrix) == 2 or (len(matrix) > 2 and matrix[:-2] == rows[:-2])

    def batches(self, head: int) -> Shape:
        """The batches of a product that have a matrix each; none where one is for all rows."""
        operands, at = self.operands(head), PRODUCTS.get(self.name(head), 0)
        return operands[at + 1].shape[:-2] if self.name(head) in PRODUCTS and len(operands) > at + 1 else ()

    def row_operands(self, head: int, operands: list[Operand]) -> list[int]:
        name = self.name(head)
        if name in PRODUCTS:
            return [PRODUCTS[name]] if len(operands) > PRODUCTS[name] else []
        if name in POINTWISE and operands:
            most = max(one.elements for one in operands)
            return [at for at, one in enumerate(operands) if one.elements == most]
        return [0]

    def picked(self, head: int, operands: list[Operand]) -> float | None:
        """Rows that it gives for each one that it is given; None where it picks none, or parts of rows."""
        name = self.name(head)
        if name not in _PICKS or not operands or len(operands[0].shape) < 2:
            return None
        source, given = operands[0], [*self.given(head), None, None]
        if name in ("index_select", "gather"):
            if given[1] in (-1, len(source.shape) - 1):
                return None
        elif name == "index" and _indexed(given[1]) >= len(source.shape):
            return None
        return self.made(head) / max(source.elements, 1)

    def places_picked(self, head: int) -> Shape:
        """The first dimensions of what it is given, where it takes places of those by number; none where it
        takes them otherwise, or where they may be others: of a matrix that is as high as wide, say."""
        name, operands = self.name(head), self.operands(head)
        if name not in ("index", "index_select", "embedding") or not operands:
            return ()
        source, given = operands[0], [*self.given(head), None, None]
        count = _indexed_first(given[1]) if name == "index" else int(name == "embedding" or given[1] == 0)
        first, others = source.shape[:count], source.shape[count:]
        return () if set(first) & set(others) else first

    def by_places(self, head: int, places: Shape) -> list[int] | None:
        """Which operands have places, where each place of its result is made of the same place of these, or
        of what is the same for all. None where it is not, or is hard to say."""
        name, operands = self.name(head), self.operands(head)
        count, shapes = len(places), [one.shape for one in operands]
        if not shapes:
            return None
        if name in POINTWISE:
            return _met(shapes, places)
        if name in PRODUCTS:
            return self._places_multiplied(name, shapes, places)
        mine = [at for at, shape in enumerate(shapes) if shape[:count] == places]
        given, dims = [*self.given(head), None, None], len(shapes[0])
        if name in _JOINS:
            behind = isinstance(given[1], int) and given[1] % (dims + (name == "stack")) >= count
            return mine if behind and len(mine) == len(shapes) else None
        if name in _REDUCES:
            along = given[_REDUCES[name]]
            inside = isinstance(along, list) and along and all(one % dims >= count for one in along)
            return mine if inside and mine == [0] else None
        return mine if name in ("to", "_to_copy", "contiguous", "clone") and mine == [0] else None

    def _places_multiplied(self, name: str, shapes: list[Shape], places: Shape) -> list[int] | None:
        """Rows by a matrix: the places are rows, or single numbers of the result, which no operand has."""
        at, count = PRODUCTS[name], len(places)
        if len(shapes) <= at + 1 or len(shapes[at]) < 2 or len(shapes[at + 1]) != 2:
            return None
        rows, matrix = shapes[at], shapes[at + 1]
        if count < len(rows):
            return [at] if rows[:count] == places else None
        wide = matrix[0] if name == "linear" else matrix[1]
        return [] if (*rows[:-1], wide) == places else None

    @cached_property
    def counted(self) -> dict[int, float]:
        """For a loss, the share of its targets that count, where that was looked at right before it."""
        observed, found = self._observed, {}
        heads = np.array([head for head in self._flow.heads().tolist() if self.name(head) in _LOSSES])
        for at, name in enumerate(observed.names):
            if name.startswith(TARGETS):
                kept, _, count = name.removeprefix(TARGETS).partition("/")
                for row in np.flatnonzero(observed.name == at).tolist():
                    behind = heads[heads > row]
                    if len(behind):
                        found[int(behind[0])] = int(kept) / max(int(count), 1)
        return found

    def given(self, head: int) -> list[object]:
        found: list[object] = msgspec.json.decode(self._observed.given[int(self._observed.arguments[head])])
        return found

    def made(self, head: int) -> int:
        """Numbers in its first result."""
        region = self.result(head)
        return 0 if region is None else elements(region)

    def row_made(self, head: int) -> int:
        """Numbers in a row of its first result."""
        made = self.result(head)
        whole = made is not None and bool(made.dims) and made.dims[-1][0] == made.width
        return made.dims[-1][1] if made is not None and whole else 1

    def result(self, head: int) -> Region | None:
        observed, uses = self._observed, self._observed.uses_of(head)
        made = [use for use in range(uses.start, uses.stop) if observed.way[use] == MAKE]
        return observed.regions[int(observed.region[made[0]])] if made else None

    def operands(self, head: int) -> list[Operand]:
        """Tensors that it was given; none where not all of them were seen."""
        if head not in self._cached:
            uses = self._observed.uses_of(head)
            mine = [use for use in range(uses.start, uses.stop) if self._observed.way[use] in (READ, CHANGE)]
            shapes = list(_shapes(self.given(head)))
            if len(mine) != len(shapes):
                known = min(len(mine), len(shapes), 1)  # an index of nothing: `x[:, rows]`
                mine, shapes = mine[:known], shapes[:known]
            self._cached[head] = [
                Operand(use, shape, self._observed.regions[int(self._observed.region[use])])
                for use, shape in zip(mine, shapes, strict=True)
            ]
        return self._cached[head]

    @cached_property
    def writer_of(self) -> dict[int, int]:
        """The outermost op that wrote what a use reads, where there is just one."""
        flow = self._flow
        found: dict[int, int] = {}
        for writer, use in zip(flow.writer.tolist(), flow.use.tolist(), strict=True):
            head = int(flow.head[writer]) if writer >= 0 else -1
            found[use] = head if found.get(use, head) == head else -1
        return found


def elements(region: Region) -> int:
    return math.prod(length for _, length in region.dims)


def _shapes(given: list[object]) -> Iterator[Shape]:
    """Of the tensors among what an op was given."""
    for one in given:
        match one:
            case [str(kind), list(shape)] if kind.startswith("Tensor("):
                yield tuple(shape)
            case [str(kind), list(shapes)] if "Tensor(" in kind:
                yield from (tuple(shape) for shape in shapes)


def _met(shapes: list[Shape], places: Shape) -> list[int] | None:
    """Which of several operands have the places of a result that they meet in number by number, where the
    others are the same for all places."""
    dims, count = max(map(len, shapes)), len(places)
    found = []
    for at, shape in enumerate(shapes):
        whole = (1,) * (dims - len(shape)) + shape
        if whole[:count] == places:
            found.append(at)
        elif any(length != 1 for length in whole[:count]):
            return None
    return found or None


def _indexed_first(given: object) -> int:
    """How many of the first dimensions an index of numbers takes the place of; 0 where it begins behind, or
    where a mask picks."""
    match given:
        case [str(kind), list(shapes)]:
            types = kind[kind.find("[") + 1 :].rstrip("]").split(",")
            plain = all("int" in one for one in types)
            return len(shapes) if plain and len(types) == len(shapes) else 0
    return 0


def _indexed(given: object) -> int:
    """How many dimensions an index takes the place of."""
    match given:
        case [str(kind), list(shapes)]:
            types = kind[kind.find("[") + 1 :].split(",")
            return sum(len(shape) if "bool" in one else 1 for one, shape in zip(types, shapes, strict=False))
    return 0
