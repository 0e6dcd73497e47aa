"""Recurrent cells that the job writes out: an LSTM, a GRU or a plain RNN, one time step after the other.

Rounds are of such a cell where a product with the same weights comes again and again, each on what the one
before left; where exactly one product lies on every way from one to the next; and where all else on the way
works number by number. So nothing that a round is given hangs on what the rounds before gave, unless it is
the state itself. How wide the gates of a round are, and what makes them, tells which cell it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.dataflow.linking import Flow, in_backward, iterations, of_ours
from findwall.dataflow.row_ops import PRODUCTS
from findwall.dataflow.usefulness import numbers_taken, taken_by_host
from findwall.model.catalogue import FEWEST_REPEATS
from findwall.model.dataflow import READ

_MOVES = frozenset({"cat", "stack", "clone", "contiguous", "reshape", "copy"})
_BLENDS = frozenset({"mul", "addcmul", "lerp"})
_SQUASHES = frozenset({"tanh", "relu"})
_WORKS = frozenset({"add", "sub", "rsub", "sigmoid"}) | _MOVES | _BLENDS | _SQUASHES
_BREAKS = 2  # of a chain, before any run of enough rounds: then it is none


class _Layer(msgspec.Struct, frozen=True):
    """What a round of a cell has: gates as wide as the state, ops that squash, and the op that ends it."""

    gates: int
    sigmoids: range
    squashes: int
    blends: int  # at most
    last: frozenset[str]


_LAYERS = {
    "nn.LSTM": _Layer(4, range(1, 4), 2, 3, frozenset({"mul"})),
    "nn.GRU": _Layer(3, range(1, 3), 1, 3, frozenset({"add", "sub", "addcmul", "lerp"})),
    "nn.RNN": _Layer(1, range(1), 1, 0, _SQUASHES),
}


class CellRun(msgspec.Struct, frozen=True):
    """One cell over all time steps."""

    layer: str
    rounds: int
    first: int  # the first product
    heads: frozenset[int]  # outermost ops of all rounds, with those that work on their inputs


def written_cells(flow: Flow, among: list[int]) -> list[CellRun]:
    """Those of some iterations."""
    return _Cells(flow, among).found()


class _Cells:
    def __init__(self, flow: Flow, among: list[int]) -> None:
        observed = flow.observed
        self._flow = flow
        backward, number = in_backward(observed), iterations(observed)
        heads = np.setdiff1d(flow.heads(), of_ours(observed))
        self._heads = heads[~backward[heads] & np.isin(number[heads], among)].tolist()
        self._number = number.tolist()
        known = set(self._heads)
        self._name = {
            head: observed.names[int(observed.name[head])].removeprefix("aten::").rstrip("_")
            for head in self._heads
        }
        writer = np.where(flow.writer >= 0, flow.head[flow.writer], -1)
        reader = flow.head[flow.reader]
        self._from: dict[int, set[int]] = {head: set() for head in self._heads}
        # What came from where, and what it is: regions of storages.
        self._given: dict[int, set[tuple[int, int]]] = {head: set() for head in self._heads}
        self._read: dict[int, set[tuple[int, int]]] = {head: set() for head in self._heads}
        self._writes = set(flow.head[flow.wrote].tolist())
        takes = np.isin(flow.reader, np.union1d(taken_by_host(observed), numbers_taken(observed)))
        self._taken = list(zip(flow.reader[takes].tolist(), writer[takes].tolist(), strict=True))
        columns = (writer, reader, flow.storage, observed.region[flow.use])
        for made, head, storage, region in zip(*(one.tolist() for one in columns), strict=True):
            if head in known and made != head:
                self._from[head].add(made)
                self._given[head].add((made, region))
                self._read[head].add((storage, region))

    def found(self) -> list[CellRun]:
        runs: dict[frozenset[int], CellRun] = {}
        for chain in self._chains():
            for depth, products in self._runs(chain):
                one = self._cell(depth, products)
                if one is not None and not any(one.first in other for other in runs):
                    runs[one.heads] = one
        return list(runs.values())

    def _chains(self) -> list[tuple[int, ...]]:
        """Products that read the same storage within an iteration, those of each once."""
        by_storage: dict[tuple[int, int], list[int]] = {}
        for head in self._heads:
            if self._name[head] in PRODUCTS:
                for storage in {storage for storage, _ in self._read[head]}:
                    by_storage.setdefault((self._number[head], storage), []).append(head)
        return list(dict.fromkeys(tuple(one) for one in by_storage.values() if len(one) >= FEWEST_REPEATS))

    def _runs(self, chain: tuple[int, ...]) -> Iterator[tuple[dict[int, int], list[int]]]:
        """Products of which each lies one product behind the one before, with the products on the longest way
        from the first to each op."""
        order = self._heads
        links, depth, run, broken = set(chain), dict[int, int](), list[int](), 0
        first, end = np.searchsorted(order, [chain[0], chain[-1] + 1])
        for head in order[first:end]:
            before = max((depth[one] for one in self._from[head] if one in depth), default=-1)
            deep = before + (self._name[head] in PRODUCTS)
            if head in links and (before < 0 or deep != len(run)):
                broken += len(run) < FEWEST_REPEATS and bool(run)
                if broken > _BREAKS:
                    return
                if len(run) >= FEWEST_REPEATS:
                    yield depth, run
                depth, run = {head: 0}, [head]
            elif before >= 0:
                depth[head] = deep
                run += [head] if head in links else []
        if len(run) >= FEWEST_REPEATS:
            yield depth, run

    def _cell(self, depth: dict[int, int], products: list[int]) -> CellRun | None:
        """None where these rounds are of no cell that the library has."""
        first, last = products[0], products[-1]
        way = self._ways(last, depth)
        asked = any(first < row < last and made in depth for row, made in self._taken)
        if asked or not all(map(self._works, way)):  # what the host takes may come back as an input
            return None
        rounds = len(products)
        # In the first round only one of the products is known to be on the way; in the last none is whole.
        inner = [head for head in way if 0 < depth[head] < rounds - 1]
        if self._given_anew(inner, depth, 1) == self._given_anew(inner, depth, 2):
            return None  # no input: it works on its own result
        layer = self._layer(inner, rounds - 2, self._ends(products[2], depth))
        if layer is None:
            return None
        return CellRun(layer, rounds, first, frozenset(self._whole(way, products)))

    def _ways(self, last: int, among: dict[int, int]) -> set[int]:
        """Of some ops those that another hangs on, itself among them."""
        found, left = {last}, [last]
        while left:
            more = [one for one in self._from[left.pop()] if one in among and one not in found]
            found.update(more)
            left += more
        return found

    def _given_anew(self, inner: list[int], depth: dict[int, int], deep: int) -> set[tuple[int, int]]:
        """What ops of one round are given that comes from no round."""
        mine = (head for head in inner if depth[head] == deep)
        return {one for head in mine for one in self._given[head] if one[0] not in depth}

    def _ends(self, product: int, depth: dict[int, int]) -> set[str]:
        """The ops that make the state which a product is given."""
        found, left = set[str](), [product]
        while left:
            for one in self._from[left.pop()] & depth.keys():
                if self._name[one] in _MOVES:
                    left.append(one)
                else:
                    found.add(self._name[one])
        return found

    def _layer(self, inner: list[int], rounds: int, ends: set[str]) -> str | None:
        names = Counter(self._name[head] for head in inner)
        width = sum(self._made(head) for head in inner if self._name[head] in PRODUCTS)
        state = next((self._made(head) for head in inner if self._name[head] in _SQUASHES), 0)
        squashes = sum(names[one] for one in _SQUASHES)
        blends = sum(names[one] for one in _BLENDS)
        for name, one in _LAYERS.items():
            if (
                width == one.gates * state * rounds
                and names["sigmoid"] in [count * rounds for count in one.sigmoids]
                and squashes == one.squashes * rounds
                and blends <= one.blends * rounds
                and ends <= one.last
            ):
                return name
        return None

    def _made(self, head: int) -> int:
        """Numbers of what an op makes."""
        regions = [self._flow.observed.regions[one] for one in self._regions_made(head)]
        return max((math.prod(length for _, length in one.dims) for one in regions), default=0)

    def _regions_made(self, head: int) -> list[int]:
        observed = self._flow.observed
        uses = observed.uses_of(head)
        made: list[int] = observed.region[uses][observed.way[uses] != READ].tolist()
        return made

    def _whole(self, way: set[int], products: list[int]) -> set[int]:
        """With what works on the rounds' inputs between the first product and the last, and the views that
        all this is given: they write nothing, but their gradients may be as large as what they are of."""
        found, left = set(way), list(way)
        while left:
            more = [one for one in self._from[left.pop()] if products[0] < one < products[-1]]
            more = [one for one in more if one not in found and self._works(one)]
            found.update(more)
            left += more
        first, end = np.searchsorted(self._heads, [products[0], products[-1]])
        given = set[tuple[int, int]]().union(*(self._read[head] for head in found))
        for head in self._heads[end:first:-1]:
            if head not in self._writes and self._hands_out(head) & given:
                found.add(head)
                given |= self._read[head]
        return found

    def _works(self, head: int) -> bool:
        return self._name[head] in _WORKS or self._name[head] in PRODUCTS

    def _hands_out(self, view: int) -> set[tuple[int, int]]:
        """The storages and regions of what a view makes."""
        made = self._regions_made(view)
        return {(storage, region) for storage, _ in self._read[view] for region in made}
