"""What the steps of a job change: kept on the host, and put back into the same tensors.

A screening trains a few steps in other numbers. What follows begins where that began: weights, buffers, what
optimizers keep, and where the random numbers stand.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from findwall.apply.new_objects import after_made
from findwall.apply.roots import roots

BY = "job's state"
ROOM_SHARE = 0.25  # of the host's free memory: no job may want for what is kept here. Chosen by hand.


class SeenJob:
    """The optimizers and models of a job, from its start on."""

    def __init__(self, torch: Any) -> None:
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        after_made(BY, torch.optim.Optimizer, self._note)
        roots(torch).tell(lambda model, _args: self._models.add(model))

    def _note(self, optimizer: Any) -> None:
        with contextlib.suppress(Exception):  # a look: a class of the job's own may refuse
            self.optimizers.add(optimizer)

    def tensors(self) -> Iterator[Any]:
        """What steps write to, each once."""
        known: set[int] = set()
        for one in (*self._trained(), *self._buffers()):
            if id(one) not in known:
                known.add(id(one))
                yield one

    def _trained(self) -> Iterator[Any]:
        for optimizer in self.optimizers:
            yield from (one for group in optimizer.param_groups for one in group["params"])
            for values in optimizer.state.values():
                yield from (one for one in values.values() if hasattr(one, "data_ptr"))

    def _buffers(self) -> Iterator[Any]:
        for model in self._models:
            yield from model.buffers()


_of_torch: dict[int, SeenJob] = {}


def seen_job(torch: Any) -> SeenJob:
    """One for all that ask in a process."""
    if id(torch) not in _of_torch:
        _of_torch[id(torch)] = SeenJob(torch)
    return _of_torch[id(torch)]


class JobState:
    """As it was at one moment, between two steps."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._job = torch, seen_job(torch)
        self._tensors = [(one, one.detach().to("cpu", copy=True)) for one in self._job.tensors()]
        self._values = [
            (weakref.ref(optimizer), {param: dict(values) for param, values in optimizer.state.items()})
            for optimizer in self._job.optimizers
        ]
        self._numbers = _random_numbers(torch)

    @classmethod
    def has_room(cls, torch: Any) -> bool:
        size = sum(one.numel() * one.element_size() for one in seen_job(torch).tensors())
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return bool(size <= ROOM_SHARE * free)

    def put_back(self) -> None:
        with self._torch.no_grad():
            for tensor, kept in self._tensors:
                tensor.data.copy_(kept)
        for there, values in self._values:
            optimizer = there()
            if optimizer is not None:
                for param in [one for one in optimizer.state if one not in values]:
                    del optimizer.state[param]
                for param, kept in values.items():
                    optimizer.state[param].update(kept)
        _put_back(self._torch, self._numbers)


def _random_numbers(torch: Any) -> dict[str, Any]:
    found = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy.random" in sys.modules:
        found["numpy"] = sys.modules["numpy.random"].get_state()
    return found


def _put_back(torch: Any, numbers: dict[str, Any]) -> None:
    torch.set_rng_state(numbers["torch"])
    random.setstate(numbers["python"])
    if "cuda" in numbers:
        torch.cuda.set_rng_state_all(numbers["cuda"])
    if "numpy" in numbers:
        sys.modules["numpy.random"].set_state(numbers["numpy"])
