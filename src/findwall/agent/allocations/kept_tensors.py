"""What of the job's own holds tensors of many steps: lists and the like, by the name the job has for them.

Asked once, of the exception that the job ended with. Nothing of the job's is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import perf_counter_ns
from typing import Any

import msgspec

from findwall.agent.allocations.live_tensors import is_plain
from findwall.agent.allocations.own_variables import LISTS, MAPPINGS, named
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE
from findwall.model.memory_history import HOST

FEWEST_TENSORS = 8
LASTS_AT_MOST_NS = 300_000_000
MOST_LOOKED_AT = 200_000  # things in containers and attributes, in all
MOST_OF_ONE = 20_000  # of a container
LOOKS_AT_CLOCK = 64  # each time after so many


class EnoughError(Exception):
    """Too many things, or too long."""


class Kept(msgspec.Struct, frozen=True):
    name: str
    function: str | None  # None: a module's own
    tensors: int
    graphs: int  # how many of them carry a graph
    nbytes: int  # on the device
    oldest: int  # the place of its graphs among all that were made
    newest: int


class Growth(msgspec.Struct, frozen=True):
    """What the holder has to explain."""

    nbytes: float
    nodes: float  # of graphs that were made meanwhile; 0: nobody knows


def holder(error: BaseException, torch: Any, device: int, growth: Growth) -> Kept | None:
    """The container that holds what grew, as far as that is sure: its tensors are as large as what grew, or
    their graphs were made over as long a time."""
    looked = _Looking(torch, device)
    with suppress(EnoughError):
        for name, function, value in named(error, (torch.nn.Module, torch.optim.Optimizer)):
            looked.count()
            looked.into(name, function, value)
    most = MAJORITY_SHARE * growth.nodes
    spanning = [one for one in looked.found if one.graphs and one.newest - one.oldest >= most > 0]
    sized = [one for one in looked.found if _is_as_large(one, growth.nbytes)]
    return max(sized or spanning, key=lambda one: (one.graphs, one.nbytes), default=None)


def _is_as_large(one: Kept, nbytes: float) -> bool:
    """What was there before the growth is larger or smaller."""
    return MAJORITY_SHARE * nbytes <= one.nbytes <= (1 + FAIR_PART) * nbytes


class _Looking:
    """Goes through containers, each once, until there are too many or it takes too long."""

    def __init__(self, torch: Any, device: int) -> None:
        self.found: list[Kept] = []
        self._torch, self._device = torch, device
        self._seen: set[int] = set()
        self._left = MOST_LOOKED_AT
        self._until = perf_counter_ns() + LASTS_AT_MOST_NS

    def count(self) -> None:
        self._left -= 1
        is_late = self._left % LOOKS_AT_CLOCK == 0 and perf_counter_ns() > self._until
        if self._left < 0 or is_late:
            raise EnoughError

    def into(self, name: str, function: str | None, value: Any) -> None:
        if type(value) not in (*LISTS, *MAPPINGS) or len(value) < 1 or id(value) in self._seen:
            return
        self._seen.add(id(value))
        mine = [one for one in self._tensors(value) if self._counts(one)]
        if len(mine) < FEWEST_TENSORS:
            return
        graphs = [one.grad_fn for one in mine if one.grad_fn is not None]
        places = [_place(one) for one in graphs] or [0]
        sizes = {
            one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
            for one in mine
            if self._is_here(one)
        }
        self.found.append(
            Kept(name, function, len(mine), len(graphs), sum(sizes.values()), min(places), max(places))
        )

    def _tensors(self, container: Any) -> Iterator[Any]:
        """Those inside, and those inside of what is inside, such as pairs."""
        for one in _inside(container):
            self.count()
            if issubclass(type(one), self._torch.Tensor):
                yield one
            elif type(one) in (*LISTS, *MAPPINGS):
                for inner in _inside(one):
                    self.count()
                    if issubclass(type(inner), self._torch.Tensor):
                        yield inner

    def _counts(self, one: Any) -> bool:
        """No weights: what a step made is on the device, or leads there."""
        if type(one) is not self._torch.Tensor or not is_plain(self._torch, one):
            return False
        return one.grad_fn is not None or (not one.requires_grad and self._is_here(one))

    def _is_here(self, one: Any) -> bool:
        return (HOST if one.device.type == "cpu" else one.device.index) == self._device


def _inside(container: Any) -> list[Any]:
    """At once: another thread may add to it."""
    return list(islice(container.values() if type(container) in MAPPINGS else container, MOST_OF_ONE))


def _place(graph: Any) -> int:
    """Torch counts what it makes for backward; a version that does not say so gives none."""
    number = getattr(graph, "_sequence_nr", None)
    return int(number()) if number is not None else 0
