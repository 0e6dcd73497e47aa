"""Which of a job's loaders feeds its steps, and that loader with batches of another size.

The first process of a sweep only looks: a loader is one that trains if optimizer steps follow its batches,
step for step, whatever mode models are in. It is told by what it is and by the lines that make it, so that a
later process knows it when it is made, before anybody asks for its length; loaders for evaluation stay as
they are. Every batch of the loader that trains is whole: the incomplete one at a pass's end is left out, as
a step with it would be another one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from findwall.apply.job_lines import place_now
from findwall.apply.registry import COMPARES, REGISTRY, STEP_POST_HOOK
from findwall.model.arms import FedLoader, Varied
from findwall.model.catalogue import MAJORITY_SHARE

BY = "loaders swept"
NO_BATCHES, OWN_SAMPLER = "no-batches", "own-sampler"  # why a size cannot be changed


class _Seen:
    """All loaders that are made alike, as a new one for each epoch is."""

    def __init__(self, torch: Any, loader: Any) -> None:
        self.size, self.samples = _size(torch, loader), _samples(loader)
        self.why_fixed = _why_fixed(torch, loader)
        self.made_by = type(loader.batch_sampler).__name__ if self.why_fixed == OWN_SAMPLER else ""
        self.batches = self.steps = 0


class SweptLoaders:
    """Watches from torch's import on. None of it may raise into the job."""

    def __init__(self, torch: Any, varied: Varied, first_batch: Callable[[], None]) -> None:
        self._torch, self._varied = torch, varied
        self._first_batch = first_batch
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # by loader
        self._passes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # by iterator
        self._seen: dict[str, _Seen] = {}
        self._since: dict[str, None] = {}  # loaders that gave batches since the last step, in their order
        self._steps = 0
        self._trains = varied.loader  # the loader whose batches are whole
        loader = torch.utils.data.DataLoader
        iterator = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
        REGISTRY.wrap(BY, loader, "__init__", self._makes, past_end=COMPARES)
        REGISTRY.wrap(BY, loader, "__iter__", self._begins, past_end=COMPARES)
        REGISTRY.wrap(BY, iterator, "__next__", self._takes, past_end=COMPARES)
        optimizers = importlib.import_module("torch.optim.optimizer")
        hook = optimizers.register_optimizer_step_post_hook(lambda *_: self._stepped())
        REGISTRY.hold(BY, STEP_POST_HOOK, hook.remove, past_end=COMPARES)

    @property
    def fed(self) -> list[FedLoader]:
        """Of a job that has no optimizer all that gave batches, those with most of them."""
        given = [(name, one) for name, one in self._seen.items() if one.batches]
        most = max((self._weight(one) for _, one in given), default=0)
        return [
            FedLoader(name, one.size, one.samples, one.batches, one.steps, one.why_fixed, one.made_by)
            for name, one in given
            if self._weight(one) > MAJORITY_SHARE * most
        ]

    @property
    def feeding(self) -> list[FedLoader]:
        """The same of a job that may have ended within its first step, whose batch was the last."""
        last = next(reversed(self._since), None) if not self._steps else None
        if last is None:
            return self.fed
        one = self._seen[last]
        return [FedLoader(last, one.size, one.samples, one.batches, one.steps, one.why_fixed, one.made_by)]

    def _weight(self, seen: _Seen) -> int:
        return seen.steps if self._steps else seen.batches

    def _makes(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            with contextlib.suppress(Exception):  # a look: it may not break the job
                self._made(loader)

        return make

    def _made(self, loader: Any) -> None:
        place = place_now("loader", loader)
        name = _name(self._torch, loader, place.spots if place is not None else ())
        self._names[loader] = name
        self._seen.setdefault(name, _Seen(self._torch, loader))
        if name == self._trains:
            self._give_whole(loader, self._varied.size)

    def _give_whole(self, loader: Any, size: int | None) -> None:
        """A pass without a whole batch would be one without end for a job that counts steps."""
        seen = self._seen[self._trains]
        size = seen.size if size is None else size
        if seen.why_fixed or size is None or (seen.samples is not None and seen.samples < size):
            return
        give_whole(loader, size)
        seen.size = size

    def _begins(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            iterator = original(loader)
            with contextlib.suppress(Exception):  # a look, as above
                self._passes[iterator] = self._names[loader]
                if self._names[loader] == self._trains:  # also one that was made before it was known
                    self._give_whole(loader, None)
            return iterator

        return iterate

    def _takes(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def take(iterator: Any) -> Any:
            batch = original(iterator)
            with contextlib.suppress(Exception):  # a look, as above
                self._given(self._passes[iterator])
            return batch

        return take

    def _given(self, name: str) -> None:
        self._first_batch()
        self._seen[name].batches += 1
        if self._torch.is_grad_enabled():
            self._since.pop(name, None)
            self._since[name] = None

    def _stepped(self) -> None:
        """An optimizer has stepped. A second one that steps on the same batch counts for nothing."""
        if not self._since:
            return
        self._steps += 1
        for name in self._since:
            self._seen[name].steps += 1
        if not self._trains:
            self._trains = next(reversed(self._since))
        self._since.clear()


def give_whole(loader: Any, size: int) -> None:
    """Batches of this size, and none that is incomplete. The loader forbids to set that once it is made;
    nothing reads it before the next pass begins."""
    loader.batch_sampler.batch_size, loader.batch_sampler.drop_last = size, True
    loader.__dict__["drop_last"] = True
    if loader.batch_size is not None:  # else it was given a batch sampler
        loader.__dict__["batch_size"] = size


def _why_fixed(torch: Any, loader: Any) -> str:
    if loader.batch_sampler is None:
        return NO_BATCHES
    return "" if type(loader.batch_sampler) is torch.utils.data.BatchSampler else OWN_SAMPLER


def _size(torch: Any, loader: Any) -> int | None:
    """Of a sampler of the job's own nobody knows what it will give."""
    known = loader.batch_size
    if known is None and not _why_fixed(torch, loader):
        known = loader.batch_sampler.batch_size
    return known if isinstance(known, int) else None


def _samples(loader: Any) -> int | None:
    with contextlib.suppress(TypeError, NotImplementedError, AttributeError):
        return len(loader.batch_sampler.sampler)
    return None


def _name(torch: Any, loader: Any, spots: Iterable[Any]) -> str:
    """The same in each process of a job. Lines alone do not do: one function may make all loaders."""
    data, sampler = type(loader.dataset), loader.sampler
    lines = ",".join(f"{spot.file}:{spot.line}" for spot in spots)
    own = (data.__module__, data.__qualname__, type(sampler).__name__)
    return "|".join(map(str, (*own, _samples(loader), _size(torch, loader), loader.drop_last, lines)))
