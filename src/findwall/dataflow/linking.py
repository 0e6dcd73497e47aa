"""Who made what each op reads.

A storage is known by its place, and a place is used again: so a storage is a new one whenever an op hands out
a tensor at a place that it was not given. Of a storage each region has its last writers; a reader's producers
are those whose regions meet its own. Composite ops are walked as they nest: what a `to` hands out was written
by the `copy_` inside it. So links are between the innermost ops, and hold for any level above them.

A number of Python's that meets a tensor is seen as a CPU tensor without dimensions, at a place of no meaning:
it has no producer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.model.dataflow import (
    BORN,
    CUT,
    KEPT,
    MAKE,
    OURS,
    OVERWRITE,
    READ,
    WRITTEN,
    Observed,
    Region,
)
from findwall.model.events import Bool
from findwall.model.intervals import I64

HOST = "cpu"
_OF_PYTHON = ("double", "long int", "bool", "c10::complex<double>")  # what its numbers become
_UPDATE = "Optimizer.step#"
COMPILED = "CompiledFunction"
BEFORE = -1  # written before anything was seen


class Flow(msgspec.Struct, frozen=True):
    """Links of `Observed`. Rows are those of its ops."""

    observed: Observed
    # a link each: `reader` reads what `writer` wrote; in the order of the readers
    writer: I64  # BEFORE: nobody who was seen
    reader: I64
    use: I64  # of the reader
    storage: I64  # a number that no two storages share
    # a storage each
    born: I64  # the row that handed it out first; BEFORE
    on_host: Bool
    # a write each, in their order
    wrote: I64  # the row
    written: I64  # the storage
    place: I64  # among the uses of the row
    # an op each
    head: I64  # the outermost op around it, itself where it is that; -1: no op at all

    def heads(self) -> I64:
        return np.flatnonzero(self.head == np.arange(len(self.head)))


def link_flow(observed: Observed) -> Flow:
    return _Walk(observed).walked()


def _outermost(parent: I64, is_op: Bool) -> I64:
    """The outermost op around each row; -1 where there is none."""
    head = np.full(len(parent), -1, np.int64)
    for row, (above, op) in enumerate(zip(parent.tolist(), is_op.tolist(), strict=True)):
        outer = head[above] if above >= 0 else -1
        head[row] = outer if outer >= 0 or not op else row
    return head


def rows_under(observed: Observed, name: str) -> set[int]:
    """The rows inside ranges of this name."""
    found: set[int] = set()
    wanted = [at for at, one in enumerate(observed.names) if one == name]
    for row in np.flatnonzero(np.isin(observed.name, wanted)).tolist():
        found |= set(range(row + 1, int(observed.last[row]) + 1))
    return found


def of_ours(observed: Observed) -> I64:
    """The rows inside any range that findwall put there."""
    found = {row for name in observed.names if name.startswith(OURS) for row in rows_under(observed, name)}
    return np.array(sorted(found), np.int64)


def iterations(observed: Observed) -> I64:
    """For each row the number of its iteration.

    Where findwall was not there to say so, each iteration ends with the same updates: after half of them.
    """
    wanted = [at for at, name in enumerate(observed.names) if name == CUT]
    begins = np.flatnonzero(np.isin(observed.name, wanted))
    if len(begins) == 0 and KEPT not in observed.names:
        updates = [at for at, name in enumerate(observed.names) if name.startswith(_UPDATE)]
        rows = np.flatnonzero(np.isin(observed.name, updates))
        begins = observed.last[rows[len(rows) // 2 - 1 : len(rows) // 2]] + 1 if len(rows) > 1 else rows[:0]
    return np.searchsorted(begins, np.arange(len(observed)), side="right")


def judged(flow: Flow) -> I64:
    """Rows of the job's outermost ops, the last iteration's left out: nobody sees what becomes of those."""
    number = iterations(flow.observed)
    heads = flow.heads()
    last = max(int(number.max(initial=0)), 1)
    return heads[(number[heads] < last) & ~np.isin(heads, of_ours(flow.observed))]


def in_backward(observed: Observed) -> Bool:
    """Rows that autograd's engine runs."""
    inside = np.zeros(len(observed), bool)
    for row in np.flatnonzero(observed.is_backward).tolist():
        inside[row : int(observed.last[row]) + 1] = True
    return inside


def owners(flow: Flow) -> dict[int, int]:
    """The outermost op of the forward pass that each number of autograd's is of. Ops that record nothing bear
    the number of the next one that does: the last with a number is its owner."""
    observed = flow.observed
    forward = np.flatnonzero(~in_backward(observed) & (observed.sequence >= 0) & (flow.head >= 0))
    return dict(zip(observed.sequence[forward].tolist(), flow.head[forward].tolist(), strict=True))


def numbers_in_backward(flow: Flow) -> I64:
    """The number of the node of autograd's around each row; -1 none. What the engine does with a node's
    gradient, as adding it to another, has the node's."""
    observed = flow.observed
    numbers = np.full(len(observed), -1, np.int64)
    nodes = np.flatnonzero(observed.is_backward & (observed.sequence >= 0))
    engine = observed.parent[nodes]
    around = (engine >= 0) & observed.is_backward[np.maximum(engine, 0)]
    for node, row in [
        *zip(nodes[around].tolist(), engine[around].tolist(), strict=True),
        *zip(nodes, nodes, strict=True),
    ]:
        numbers[row : int(observed.last[row]) + 1] = observed.sequence[node]
    return numbers


def opaque(observed: Observed) -> Bool:
    """Rows of which nobody sees what they do with their tensors: compiled regions, and functions that run no
    ops. A node of autograd's that runs none only hands its gradient on."""
    inside = np.concatenate([[0], np.cumsum(observed.is_op)])
    empty = inside[observed.last + 1] == inside[np.arange(len(observed))]
    compiled = np.array([COMPILED in name for name in observed.names], bool)[observed.name]
    given = np.isin(np.arange(len(observed)), observed.op[observed.way == READ])
    found: Bool = ~observed.is_op & given & (compiled | (empty & ~observed.is_backward))
    return found


def _ops_around(parent: I64, is_op: list[bool]) -> list[int]:
    """The next op around each row; -1 none."""
    around: list[int] = []
    for above in parent.tolist():
        around.append(-1 if above < 0 else above if is_op[above] else around[above])
    return around


class _Storage:
    """One storage from its birth on: its last writers, the newest last."""

    __slots__ = ("born", "number", "tensors", "writes")

    def __init__(self, number: int, born: int) -> None:
        self.number, self.born = number, born
        self.tensors: set[tuple[int, int]] = set()  # that ops handed out, with the type of their numbers
        self.writes: list[tuple[int, Region]] = []

    def write(self, row: int, region: Region) -> None:
        self.writes = [one for one in self.writes if not covers(region, one[1])]
        self.writes.append((row, region))

    def writers(self, region: Region) -> list[int]:
        """Of what lies in a region now; BEFORE where some of it may be older than all that was seen."""
        found = []
        for row, written in reversed(self.writes):
            if meet(written, region):
                found.append(row)
                if covers(written, region):
                    return found
        return [*found, BEFORE]


class _Walk:
    def __init__(self, observed: Observed) -> None:
        self._seen = observed
        self._now: dict[tuple[int, int], _Storage] = {}  # by device and place
        self._born: list[int] = []
        self._on_host: list[bool] = []
        self._writes: list[tuple[int, int, int]] = []
        written = {name for name in observed.names if name.startswith(WRITTEN)}
        self._given_birth = set[int]().union(*(rows_under(observed, name) for name in {BORN, *written}))
        self._links: list[tuple[int, int, int, int]] = []
        self._uses = list(
            zip(
                *(
                    column.tolist()
                    for column in (
                        observed.way,
                        observed.storage,
                        observed.region,
                        observed.type,
                        observed.device,
                        observed.tensor,
                    )
                ),
                strict=True,
            )
        )
        self._first = np.searchsorted(observed.op, np.arange(len(observed) + 1)).tolist()
        self._is_op = observed.is_op.tolist()
        self._is_opaque = opaque(observed).tolist()
        self._around = _ops_around(observed.parent, self._is_op)
        self._asked: tuple[int, set[tuple[int, int]]] = (-1, set())

    def walked(self) -> Flow:
        for row, begins in _begins_and_ends(self._seen.last):
            if not self._is_op[row] and not self._is_opaque[row]:
                continue  # a range, or a node of autograd's: what runs inside says what it does
            if begins:
                self._begin(row)
            else:
                self._end(row)
        links = np.array(self._links, np.int64).reshape(-1, 4).T
        writes = np.array(self._writes, np.int64).reshape(-1, 3).T
        return Flow(
            observed=self._seen,
            writer=links[0],
            reader=links[1],
            use=links[2],
            storage=links[3],
            born=np.array(self._born, np.int64),
            on_host=np.array(self._on_host, bool),
            wrote=writes[0],
            written=writes[1],
            place=writes[2],
            head=_outermost(self._seen.parent, self._seen.is_op),
        )

    def _begin(self, row: int) -> None:
        """It reads what lies there now."""
        if row in self._given_birth:
            self._receive(row)
            return
        if self._is_named(row, LIFTS):
            return  # what Python wrote: whatever lay there before is gone
        for use in range(self._first[row], self._first[row + 1]):
            way, place, region, dtype, device, tensor = self._uses[use]
            shape = self._seen.regions[region]
            known = self._now.get((device, place))
            if way == MAKE or self._is_number(known, shape, dtype, device, tensor):
                continue
            if self._is_plain_number(shape, dtype, device) and self._comes_from_nowhere(row, place, device):
                self._now.pop((device, place), None)  # what lay there is freed
                continue
            storage = self._at(row, place, device)
            if way != OVERWRITE:
                for writer in storage.writers(shape):
                    self._links.append((writer, row, use, storage.number))

    def _receive(self, row: int) -> None:
        """What no op made, and is new here."""
        for use in range(self._first[row], self._first[row + 1]):
            way, place, region, _, device, _ = self._uses[use]
            if way == READ:
                storage = self._new(place, device, row)
                self._write(storage, row, self._seen.regions[region], use)

    def _write(self, storage: _Storage, row: int, region: Region, use: int) -> None:
        storage.write(row, region)
        self._writes.append((row, storage.number, use - self._first[row]))

    def _given(self, row: int) -> set[tuple[int, int]]:
        """Where the tensors lie that an op was given."""
        if row != self._asked[0]:
            uses = self._uses[self._first[row] : self._first[row + 1]]
            self._asked = row, {(one[1], one[4]) for one in uses if one[0] != MAKE}
        return self._asked[1]

    def _is_number(
        self, storage: _Storage | None, region: Region, dtype: int, device: int, tensor: int
    ) -> bool:
        """Whether it is one of Python's: nobody handed out such a tensor."""
        is_new = storage is None or (tensor, dtype) not in storage.tensors
        return is_new and self._is_plain_number(region, dtype, device)

    def _is_plain_number(self, region: Region, dtype: int, device: int) -> bool:
        on_host = self._seen.devices[device] == HOST
        return not region.dims and on_host and self._seen.types[dtype] in _OF_PYTHON

    def _comes_from_nowhere(self, row: int, place: int, device: int) -> bool:
        """Whether the op around was neither given what lies there nor has made it: then it wrote a number
        out, where by chance another tensor lay."""
        around, storage = self._around[row], self._now.get((device, place))
        if around < 0 or (storage is not None and storage.born >= around):
            return False
        return (place, device) not in self._given(around)

    def _at(self, row: int, place: int, device: int) -> _Storage:
        """What lies at a place that an op was given."""
        around, storage = self._around[row], self._now.get((device, place))
        is_new = around >= 0 and (storage is None or storage.born < around)
        # An op that is called again inside itself is given what autocast cast for it, maybe long before.
        is_new &= storage is None or self._seen.name[row] != self._seen.name[max(around, 0)]
        if is_new and (place, device) not in self._given(around):
            return self._new(place, device, around)  # by the op around it, and nobody saw how
        return storage or self._new(place, device, BEFORE)

    def _new(self, place: int, device: int, born: int) -> _Storage:
        storage = self._now[device, place] = _Storage(len(self._born), born)
        self._born.append(born)
        self._on_host.append(self._seen.devices[device] == HOST)
        return storage

    def _end(self, row: int) -> None:
        """What it changed or handed out has been written, by it unless an op inside it did."""
        given = self._given(row)
        for use in range(self._first[row], self._first[row + 1]):
            way, place, region, dtype, device, tensor = self._uses[use]
            if way == READ:
                continue
            is_given = (place, device) in given
            storage = self._now.get((device, place))
            if self._is_named(row, (POINTS,)):
                if storage is None:
                    storage = self._new(place, device, BEFORE)
                storage.tensors.add((tensor, dtype))
                continue
            shape, lifts = self._seen.regions[region], way == MAKE and self._is_named(row, LIFTS)
            if way != MAKE:
                storage = self._at(row, place, device)
            elif (
                storage is None
                or (storage.born < row and not is_given)
                or (lifts and (storage.writes or storage.born == BEFORE))  # the place of one that is freed
            ):
                storage = self._new(place, device, row)
            storage.tensors.add((tensor, dtype))
            if way == MAKE and is_given and (storage.writes or not lifts):
                continue  # a view of what it was given
            if way == MAKE and self._is_named(row, ALLOCATES):
                continue  # memory that nobody has written yet
            inside = [writer for writer in storage.writers(shape) if writer >= row]
            if not inside:
                self._write(storage, row, shape, use)

    def _is_named(self, row: int, names: tuple[str, ...]) -> bool:
        return self._seen.names[int(self._seen.name[row])].startswith(names)


LIFTS = ("aten::lift_fresh",)  # what Python has written: `torch.tensor(rows)`, `mask[a:b] = True`
POINTS = "aten::set_"  # at memory that Python hands it, and no op has made: it writes none, as in a deep copy
ALLOCATES = ("aten::empty", "aten::new_empty", "aten::_empty_affine_quantized", "aten::resize_")


def _begins_and_ends(last: I64) -> Iterator[tuple[int, bool]]:
    """Rows as they begin and end: one ends before what comes behind the last row inside it."""
    ends: dict[int, list[int]] = {}
    for row, inner in enumerate(last.tolist()):
        ends.setdefault(inner, []).append(row)
    for row in range(len(last)):
        yield row, True
        for ended in reversed(ends.get(row, ())):
            yield ended, False


def covers(one: Region, other: Region) -> bool:
    """Whether the first has all bytes of the second."""
    if one == other:
        return True
    return one.first <= other.first and other.end <= one.end and one.is_whole


def meet(one: Region, other: Region) -> bool:
    """Whether two regions of a storage share a byte; where that is hard to say, they do."""
    if one.end <= other.first or other.end <= one.first:
        return False
    if (one.is_whole and other.is_whole) or one == other:
        return True
    steps = sorted({stride for region in (one, other) for stride, _ in region.dims}, reverse=True)
    base = min(one.first, other.first)
    places = [_places(region, base, steps) for region in (one, other)]
    if places[0] is None or places[1] is None:
        return True
    return all(a < d and c < b for (a, b), (c, d) in zip(*places, strict=True))


def _places(region: Region, base: int, steps: list[int]) -> list[tuple[int, int]] | None:
    """Which multiples of each stride a region has, and which bytes within the last; None where they cannot be
    told apart."""
    left, length, found = region.first - base, dict(region.dims), []
    if len(length) < len(region.dims):
        return None  # two dimensions of one stride
    room = None
    for step in steps:
        at = left // step
        left -= at * step
        end = at + length.get(step, 1)
        if room is not None and end * step > room:
            return None  # it runs over into the next multiple
        found.append((at, end))
        room = step
    if room is not None and left + region.width > room:
        return None
    return [*found, (left, left + region.width)]
