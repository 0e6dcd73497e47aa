"""Which samples a job's loaders ask for, and whether making them draws random numbers.

Two arms of a trial must ask for the same samples in the same order. A dataset that draws (crops, flips,
noise) draws other numbers in a worker than in the training process, and others with another number of
workers: there the losses cannot be the same. Forked workers have these looks in them too, and tell what they
see in memory that they share with the training process. Workers that begin as new processes have not.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import mmap
from collections.abc import Callable
from typing import Any
from zlib import crc32

from findwall.agent.trial_arm.random_state import Drawing
from findwall.apply.registry import COMPARES, REGISTRY, Call, Make

# Batches whose order is noted, of each of so many loaders. Chosen by hand.
NOTED, LOADERS = 16, 4
# Batches whose making is looked at, of each of so many datasets in each process; and of all in all workers,
# which may start again and again. Chosen by hand.
LOOKS, DATASETS, LOOKS_IN_WORKERS = 8, 16, 255
_DREW, _LOOKED = 0, 1  # bytes of the shared memory: whether any dataset drew, and how often workers looked


class Samples:
    """Watches from torch's import on; what it costs ends with the first batches."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._worker_info: Callable[[], Any] = lambda: None
        self._order: dict[int, list[int]] = {}  # by sampler, as they are first asked
        self._looks: dict[int, int] = {}  # taken in this process, by dataset
        self._shared = mmap.mmap(-1, 2)
        self._asks_workers = False
        with contextlib.suppress(ImportError, AttributeError):  # a torch that has no such loaders
            iterator = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
            fetch = importlib.import_module("torch.utils.data._utils.fetch")
            map_style, stream = fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher
            self._worker_info = torch.utils.data.get_worker_info
            self._wrap(iterator, "_next_index", self._noting)
            for one in (map_style, stream):
                self._wrap(one, "fetch", self._looking(lambda fetcher, _index: fetcher.dataset))
            # A stream may draw its order where it begins.
            self._wrap(stream, "__init__", self._looking(lambda _fetcher, dataset, *_: dataset))

    def _wrap(self, home: Any, name: str, make: Make) -> None:
        REGISTRY.wrap("trial samples", home, name, make, past_trace=COMPARES)

    @property
    def order(self) -> list[list[int]]:
        """A number for each of the first batches, loader by loader: the same for the same samples."""
        return list(self._order.values())

    @property
    def draws(self) -> bool:
        """Whether making a sample was seen to draw, in this process or in a worker."""
        return bool(self._shared[_DREW])

    @property
    def unseen(self) -> bool:
        """Whether workers make samples that nobody could look at: they were not forked from this process."""
        return self._asks_workers and not self.draws and not self._shared[_LOOKED]

    def _noting(self, original: Call) -> Call:
        @functools.wraps(original)
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            with contextlib.suppress(Exception):  # a look: it may not break the job
                self._asks_workers = self._asks_workers or hasattr(iterator, "_workers")
                sampler = id(iterator._index_sampler)
                if sampler in self._order or len(self._order) < LOADERS:
                    noted = self._order.setdefault(sampler, [])
                    if len(noted) < NOTED:
                        noted.append(crc32(repr(index).encode()))
            return index

        return next_index

    def _looking(self, dataset_of: Callable[..., Any]) -> Make:
        """Also in workers, as they are forked with it."""

        def looked_at(original: Call) -> Call:
            @functools.wraps(original)
            def made(fetcher: Any, *args: Any, **kwargs: Any) -> Any:
                look = None if self._shared[_DREW] else self._look(dataset_of, fetcher, args)
                if look is None:
                    return original(fetcher, *args, **kwargs)
                before = look.stands()
                result = original(fetcher, *args, **kwargs)
                if look.drew_since(before):
                    self._shared[_DREW] = 1
                return result

            return made

        return looked_at

    def _look(self, dataset_of: Callable[..., Any], fetcher: Any, args: tuple[Any, ...]) -> Drawing | None:
        """None where enough was seen."""
        with contextlib.suppress(Exception):  # a look: it may not break the job
            dataset = dataset_of(fetcher, *args)
            taken = self._looks.get(id(dataset), 0 if len(self._looks) < DATASETS else LOOKS)
            if taken >= LOOKS:
                return None
            if self._worker_info() is not None:
                if self._shared[_LOOKED] >= LOOKS_IN_WORKERS:
                    return None
                self._shared[_LOOKED] += 1
            self._looks[id(dataset)] = taken + 1
            return Drawing(self._torch, dataset)
        return None
