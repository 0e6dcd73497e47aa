"""What an iteration computes twice, and what every iteration computes alike.

Two ops compute the same where they have the same name, were given the same numbers, and read the same values:
what an op wrote that computes the same, or what was there before. Tokens that an embedding is given are the
same where they are the same numbers, whoever wrote them, and so is a tensor that Python makes of a list. A
number of Python's that meets a tensor has no value in what torch's observer writes: where findwall has not
told it, the op is like no other.

What is computed again from what was made for a step before counts as twice: one request may take many steps.
A gradient is the same where the same op of the forward pass has it: others' may be equal by what they are.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import msgspec
import numpy as np

from findwall.dataflow.linking import (
    BEFORE,
    Flow,
    iterations,
    judged,
    numbers_in_backward,
    of_ours,
    opaque,
    rows_under,
)
from findwall.model.dataflow import CHANGE, HELD, NUMBERS, READ, SAME, STATE, WRITTEN
from findwall.model.events import Bool
from findwall.model.intervals import I64

# By chance, or by what a library keeps for itself.
_RANDOM = re.compile(
    r"rand|normal_?$|bernoulli|dropout|uniform|multinomial|exponential|poisson|rrelu|geometric|cauchy|_rnn"
    r"|lstm|gru|c10d::"
)
# They keep running means, which no result of theirs hangs on while they are trained.
_COUNTS = frozenset({"aten::batch_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm"})
_DROPS = {"aten::scaled_dot_product_attention": 4}  # which argument is the share that is dropped


class Repeats(msgspec.Struct, frozen=True):
    """Rows of outermost ops, the last iteration's left out."""

    twice: I64  # the later ones of several that compute the same
    always: I64  # what a later iteration computes alike, from what stays as it is


def repeats(flow: Flow) -> Repeats:
    observed = flow.observed
    heads = flow.heads()
    heads = heads[~np.isin(heads, of_ours(observed))]
    values = _Values(flow, heads.tolist())
    sharable = _makes_anew(flow)
    number = iterations(observed)
    last: dict[int, int] = {}  # the last iteration in which each value is computed
    for head in heads.tolist():
        last[values.of[head]] = int(number[head])
    first: dict[int, int] = {}  # and the first
    twice, always = set[int](), set[int]()
    for head in judged(flow)[sharable[judged(flow)]].tolist():
        value, own = values.of[head], int(number[head])
        if first.get(value, own) < own:
            known = head in values.made and head not in values.fixed
        else:
            known = value in first
        first.setdefault(value, own)
        if known:
            twice.add(head)
        if head in values.fixed and last[value] > number[head]:
            always.add(head)
    together = _changed_together(flow) + _of_one_node(flow, sharable)
    return Repeats(_whole(twice, together), _whole(always, together))


def _whole(heads: set[int], together: list[set[int]]) -> I64:
    """Without those that could not be shared: an op that computes something else changes the result, or is of
    the same node of autograd's."""
    left = set(heads)
    while alone := {head for group in together if not group <= left for head in group & left}:
        left -= alone
    return np.array(sorted(left), np.int64)


class _Values:
    """What each op computes, as a number: the same where it is the same."""

    def __init__(self, flow: Flow, heads: list[int]) -> None:
        self._flow = flow
        self._numbers: dict[Hashable, int] = {}
        self._reads = _reads(flow)
        self._place = dict(
            zip(
                zip(flow.wrote.tolist(), flow.written.tolist(), strict=True), flow.place.tolist(), strict=True
            )
        )
        self._stays = _stays(flow)
        self._counted = _counted(flow)
        self._held = _held(flow)
        self._written = _written(flow)
        self._numbers_of = told_numbers(flow)
        self._node = numbers_in_backward(flow)
        self.of: dict[int, int] = {}
        self.fixed: set[int] = set()  # ops that read nothing which may be another in the next step
        self.made: set[int] = set()  # nor anything that may be changed unseen: by chance, perhaps, but once
        chance = _by_chance(flow)
        for head in heads:
            key = None if chance[head] else self._key(head)
            self.of[head] = self._numbers.setdefault(key or ("only", head), len(self._numbers))
            if key is not None and self._all_read(head, self.fixed):
                self.fixed.add(head)
            if key is None or self._all_read(head, self.made):
                self.made.add(head)

    def _key(self, head: int) -> Hashable | None:
        """None where it reads what an op wrote that nobody can tell."""
        observed = self._flow.observed
        inputs: list[Hashable] = []
        for writer, storage, region, dtype in self._reads.get(head, ()):
            if (head, storage) in self._counted:
                continue
            if (head, storage) in self._held:
                inputs.append((self._held[head, storage], region, dtype))
                continue
            if writer == BEFORE:
                inputs.append((BEFORE, storage, region, dtype))
                continue
            maker = int(self._flow.head[writer])
            if maker in self._written:
                inputs.append((self._written[maker], region, dtype))
                continue
            if maker not in self.of:
                return None
            made = self.of[maker], writer - maker, self._place.get((writer, storage), -1)
            inputs.append((made, region, dtype))
        numbers = self._numbers_of.get(head, -1)
        op = int(observed.name[head]), int(observed.arguments[head]), int(self._node[head])
        return *op, numbers, tuple(inputs)

    def _all_read(self, head: int, known: set[int]) -> bool:
        """Whether it reads nothing but what stays, what Python writes alike, and what these ops wrote."""
        return all(
            storage in self._stays
            if writer == BEFORE
            else (maker := int(self._flow.head[writer])) in known or maker in self._written
            for writer, storage, _, _ in self._reads.get(head, ())
            if (head, storage) not in self._counted and (head, storage) not in self._held
        )


def _counted(flow: Flow) -> set[tuple[int, int]]:
    """Outermost ops, and the storages in which they only count."""
    observed = flow.observed
    counts = np.array([name in _COUNTS for name in observed.names], bool)[observed.name]
    changed = flow.born[flow.written] == BEFORE
    heads = flow.head[flow.wrote]
    mine = changed & (heads >= 0) & counts[np.maximum(heads, 0)]
    return set(zip(heads[mine].tolist(), flow.written[mine].tolist(), strict=True))


def _held(flow: Flow) -> dict[tuple[int, int], str]:
    """Outermost ops and storages that were looked into before them: what they hold, as a digest."""
    observed, heads = flow.observed, flow.heads()
    heads = heads[~np.isin(heads, of_ours(observed))]
    names = np.array([name.startswith(HELD) for name in observed.names], bool)
    found: dict[tuple[int, int], str] = {}
    for mark in np.flatnonzero(names[observed.name]).tolist():
        inside = (flow.reader > mark) & (flow.reader <= observed.last[mark])
        at = int(np.searchsorted(heads, mark))
        for storage in np.unique(flow.storage[inside]).tolist() if at < len(heads) else ():
            found[int(heads[at]), storage] = observed.names[int(observed.name[mark])]
    return found


def _written(flow: Flow) -> dict[int, str]:
    """Marks of tensors that Python made of numbers: what these are, as a digest."""
    observed = flow.observed
    told = [name for name in observed.names if name.startswith(WRITTEN)]
    return {int(flow.head[row]): name for name in told for row in rows_under(observed, name)}


def _reads(flow: Flow) -> dict[int, list[tuple[int, int, int, int]]]:
    """What each outermost op itself reads: who wrote it, in which storage, which part, as what."""
    observed = flow.observed
    own = np.flatnonzero(flow.head[flow.reader] == flow.reader)
    columns = (
        flow.writer[own],
        flow.storage[own],
        observed.region[flow.use[own]],
        observed.type[flow.use[own]],
    )
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for reader, *read in zip(flow.reader[own].tolist(), *(one.tolist() for one in columns), strict=True):
        found.setdefault(reader, []).append((read[0], read[1], read[2], read[3]))
    return found


def _by_chance(flow: Flow) -> Bool:
    """Ops whose result is never known to be that of another: random ones, and what reads a number of Python's
    without a value, or does nobody sees what."""
    observed = flow.observed
    found = np.array([_RANDOM.search(name) is not None for name in observed.names], bool)[observed.name]
    found |= opaque(observed)
    for at, name in enumerate(observed.names):
        for row in np.flatnonzero(observed.name == at).tolist() if name in _DROPS else ():
            given = msgspec.json.decode(observed.given[int(observed.arguments[row])])
            found[row] |= len(given) > _DROPS[name] and bool(given[_DROPS[name]])
    found[np.unique(flow.head[found & (flow.head >= 0)])] = True  # what runs inside an op decides for it
    found[_without_value(flow)] = True
    return found


def _without_value(flow: Flow) -> I64:
    """Ops that read a number of Python's which nobody told."""
    observed = flow.observed
    reads = np.isin(observed.way, (READ, CHANGE))
    ops = observed.op[reads & ~np.isin(np.arange(len(observed.op)), flow.use)]
    told = np.array(sorted(told_numbers(flow)), np.int64)
    return ops[~np.isin(np.where(flow.head[ops] >= 0, flow.head[ops], ops), told)]


def told_numbers(flow: Flow) -> dict[int, int]:
    """Outermost ops that were called with numbers of Python's, and the name of the range that tells which."""
    observed = flow.observed
    names = np.array([name.startswith(NUMBERS) for name in observed.names], bool)
    marks = np.flatnonzero(names[observed.name])
    heads = flow.heads()
    at = np.searchsorted(heads, marks)
    marks, following = marks[at < len(heads)], heads[at[at < len(heads)]]
    same = observed.thread[marks] == observed.thread[following]
    return dict(zip(following[same].tolist(), observed.name[marks[same]].tolist(), strict=True))


def _stays(flow: Flow) -> set[int]:
    """Storages of before that nobody changes. What lies in the host's memory may be changed unseen: of that
    only parameters, buffers, and what was looked at."""
    observed = flow.observed
    told = np.isin(flow.reader, list(rows_under(observed, STATE) | rows_under(observed, SAME)))
    stays = set(flow.storage[told].tolist())
    stays |= set(np.flatnonzero((flow.born == BEFORE) & ~flow.on_host).tolist())
    return stays - set(flow.written[flow.born[flow.written] == BEFORE].tolist())


def _makes_anew(flow: Flow) -> Bool:
    """Ops that make or change something of this iteration, and nothing that is older: one result could serve
    instead of several. Views make nothing."""
    makes = np.zeros(len(flow.observed), bool)
    spoilt = np.zeros(len(flow.observed), bool)
    counted = _counted(flow)
    for row, storage in zip(flow.wrote.tolist(), flow.written.tolist(), strict=True):
        head = int(flow.head[row])
        makes[head] = True
        if flow.born[storage] == BEFORE and (head, storage) not in counted:
            spoilt[head] = True
    return makes & ~spoilt


def _of_one_node(flow: Flow, sharable: Bool) -> list[set[int]]:
    """What each node of autograd's makes as it is run once: a gradient is kept whole, or not."""
    observed = flow.observed
    found, until = list[set[int]](), -1
    for row in np.flatnonzero(observed.is_backward).tolist():
        if row > until:
            until = int(observed.last[row])
            inside = np.arange(row, until + 1)
            found.append(set(inside[sharable[inside] & (flow.head[inside] == inside)].tolist()))
    return found


def _changed_together(flow: Flow) -> list[set[int]]:
    """The outermost ops that write one storage, where there are several: `relu_` behind a convolution."""
    by_storage: dict[int, set[int]] = {}
    for row, storage in zip(flow.wrote.tolist(), flow.written.tolist(), strict=True):
        if flow.born[storage] != BEFORE:
            by_storage.setdefault(storage, set()).add(int(flow.head[row]))
    return [heads for heads in by_storage.values() if len(heads) > 1]
