"""Which samples a job's loaders ask for, and whether making them draws random numbers.

Two arms of a trial must ask for the same samples in the same order. A dataset that draws (crops, flips,
noise) draws other numbers in a worker than in the training process: there the losses cannot be the same.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import random
import sys
from collections.abc import Callable
from typing import Any
from zlib import crc32

# Batches whose order is noted, of each of so many loaders, and whose making is looked at. Chosen by hand.
NOTED, LOADERS, LOOKS = 16, 4, 8


class Samples:
    """Watches from torch's import on; what it costs ends with the first batches."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._process = torch, os.getpid()
        self._order: dict[int, list[int]] = {}  # by sampler, as they are first asked
        self._looks_left = LOOKS
        self.draws = False
        with contextlib.suppress(ImportError, AttributeError):  # a torch that has no such loaders
            iterator = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
            fetch = importlib.import_module("torch.utils.data._utils.fetch")
            iterator._next_index = self._noting(iterator._next_index)
            for one in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
                one.fetch = self._looking(one.fetch)

    @property
    def order(self) -> list[list[int]]:
        """A number for each of the first batches, loader by loader: the same for the same samples."""
        return list(self._order.values())

    def _noting(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            with contextlib.suppress(Exception):  # a look: it may not break the job
                sampler = id(iterator._index_sampler)
                if sampler in self._order or len(self._order) < LOADERS:
                    noted = self._order.setdefault(sampler, [])
                    if len(noted) < NOTED:
                        noted.append(crc32(repr(index).encode()))
            return index

        return next_index

    def _looking(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            if self._looks_left <= 0 or self.draws or os.getpid() != self._process:
                return original(fetcher, index)
            self._looks_left -= 1
            before = self._drawn()
            batch = original(fetcher, index)
            self.draws = self._drawn() != before
            return batch

        return fetch

    def _drawn(self) -> tuple[Any, ...]:
        """Where the random numbers stand that a dataset may draw from."""
        numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else ()
        states = (*self._torch.get_rng_state().tolist(), *numpy)
        return random.getstate(), *(one.tobytes() if hasattr(one, "tobytes") else one for one in states)
