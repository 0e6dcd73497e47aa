"""The loaders that feed a job's steps, for fixes that change how they are fed.

A loader is changed when it is first gone through: then it is known whether it feeds training. What a job that
has an optimizer goes through without gradients is its evaluation, and left alone; and so is what it goes
through with all that it trains in evaluation mode, once it was seen to train in training mode.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

from findwall.apply.job_lines import passed, place_now
from findwall.apply.modes import Modes
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.model.applied import Place

BY = "loaders that feed"
_OF_WORKERS = ("num_workers", "persistent_workers", "prefetch_factor", "_iterator")
Found = Callable[[Any], None]  # with the loader
Began = Callable[[Any, Any], None]  # with the loader and its iterator


class Loaders:
    """Tells of each loader that feeds the steps once, right before its first pass; and of each pass."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._found: list[Found] = []
        self._began: list[Began] = []
        # By id, and gone with the loader: one that is made later may get the same id.
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._modes = Modes(torch)
        self._fed_by: set[tuple[int, type]] = set()  # datasets of loaders that fed steps
        self._made: dict[int, tuple[weakref.ref[Any], Place]] = {}
        self._made_on: dict[tuple[int, type], Place] = {}  # by dataset: libraries remake loaders

    def tell(self, found: Found, began: Began | None = None) -> None:
        """None of these may raise into the job."""
        if not self._found:
            loader = self._torch.utils.data.DataLoader
            REGISTRY.wrap(BY, loader, "__iter__", self._watched, past_end=APPLIED)
            REGISTRY.wrap(BY, loader, "__init__", self._remembered, past_end=APPLIED)
            self._modes.watch()
        self._found.append(found)
        if began is not None:
            self._began.append(began)

    def keep_workers(self, loader: Any) -> None:
        """From pass to pass, with the order of samples that workers which start anew would give."""
        if not loader.persistent_workers:
            set_on(loader, persistent_workers=True)
            self._kept[id(loader)] = loader

    def made_at(self, loader: Any) -> Place | None:
        """The job's call that made it."""
        known = self._made.get(id(loader))
        place = known[1] if known is not None and known[0]() is loader else None
        if place is None or place.library:
            return self._made_on.get(_data_of(loader), place)
        return place

    def _remembered(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            with contextlib.suppress(Exception):  # fail open: its line is for a patch alone
                self._remember(loader, original, args, kwargs)

        return make

    def _remember(self, loader: Any, original: Callable[..., None], args: Any, kwargs: Any) -> None:
        takes, given = passed(original, args, kwargs)
        place = place_now("loader", loader, takes, given)
        if place is None:
            return
        known = id(loader)
        self._made[known] = weakref.ref(loader, lambda _: self._made.pop(known, None)), place
        if not place.library:
            self._made_on[_data_of(loader)] = place

    def keeps(self, loader: Any) -> bool:
        """Whether its workers are kept by us."""
        return self._kept.get(id(loader)) is loader

    def _watched(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            known = self._known.get(id(loader)) is loader
            if not known and self._feeds_steps(loader):
                known = True
                self._known[id(loader)] = loader
                self._fed_by.add(_data_of(loader))
                for found in self._found:
                    found(loader)
            if self.keeps(loader) and loader.persistent_workers and loader._iterator is not None:
                self._draw_seed(loader)
            iterator = original(loader)
            if known:
                for began in self._began:
                    began(loader, iterator)
            return iterator

        return iterate

    def _draw_seed(self, loader: Any) -> None:
        """A pass that starts workers draws their seed; one that keeps them does not, and all that is drawn
        after it, the order of samples first of all, would be other numbers."""
        self._torch.empty((), dtype=self._torch.int64).random_(generator=loader.generator)

    def _feeds_steps(self, loader: Any) -> bool:
        if not self._modes.has_optimizer:
            return True
        # Some jobs make a loader for each epoch, and leave evaluation mode only after its first batch.
        return bool(self._torch.is_grad_enabled()) and (
            _data_of(loader) in self._fed_by or not self._modes.evaluates
        )


def _data_of(loader: Any) -> tuple[int, type]:
    return id(loader.dataset), type(loader.dataset)


_of_torch: dict[int, Loaders] = {}


def loaders(torch: Any) -> Loaders:
    """One for all fixes of a process."""
    return _of_torch.setdefault(id(torch), Loaders(torch))


def set_on(loader: Any, **values: Any) -> None:
    """Attributes of a loader that forbids to set them once it is made."""
    loader.__dict__.update(values)


def workers_of(iterator: Any) -> list[int]:
    """The processes that make this pass's batches, by id: those that are there."""
    return [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.is_alive()]


def show_first_batch(iterator: Any, seen: Callable[[Any], None]) -> None:
    """Show the next batch of this pass once; then the iterator is as it was."""
    take = iterator._next_data

    def shown() -> Any:
        iterator.__dict__.pop("_next_data", None)
        batch = take()
        seen(batch)
        return batch

    iterator._next_data = shown


class Unchanged:
    """A loader as it was before it got workers, to go back to where they cannot make its first batch.

    What a dataset does in another process may fail there: a forked one cannot use the GPU.
    """

    def __init__(self, torch: Any, loader: Any) -> None:
        self._torch, self._loader = torch, weakref.ref(loader)
        self._had = {name: loader.__dict__[name] for name in _OF_WORKERS}
        self._drawn = torch.get_rng_state()
        self._own_drawn = None if loader.generator is None else loader.generator.get_state()

    def return_if_broken(self, iterator: Any, tell: Callable[[str], None]) -> None:
        """Watch the first batch of this pass: the job sees none of it if it cannot be made."""
        take = iterator._next_data

        def first() -> Any:
            iterator.__dict__.pop("_next_data", None)  # another fix may look at it too
            try:
                return take()
            except StopIteration:
                raise
            except Exception as error:  # whatever the job's own dataset raises in a worker
                loader = self._loader()
                if loader is None:
                    raise
                tell(f"{type(error).__name__} in a worker that made the first batch")
                iterator._shutdown_workers()
                iterator._next_data = self._made_here(loader)._next_data
                return iterator._next_data()

        iterator._next_data = first

    def _made_here(self, loader: Any) -> Any:
        """The same pass as the job would have made it, from the same random numbers."""
        set_on(loader, **self._had)
        self._torch.set_rng_state(self._drawn)
        if self._own_drawn is not None:
            loader.generator.set_state(self._own_drawn)
        return loader._get_iterator()
