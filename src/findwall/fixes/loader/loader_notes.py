"""What an edit of a loader must know besides where it is made: which others are made there, and its order."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any

from msgspec.structs import replace

from findwall.apply.applying import Effect
from findwall.apply.job_lines import place_now
from findwall.apply.new_objects import after_made
from findwall.apply.registry import APPLIED, REGISTRY, Call
from findwall.fixes.loader.live_loaders import loaders
from findwall.model.applied import Place

BESIDE, SHUFFLES = "beside", "shuffles"  # places


def note_shuffling(torch: Any, effect: Effect, loader: Any, made: Place | None) -> None:
    """Its samplers draw the order of samples from the numbers that workers draw their seed from."""
    drawn = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
    samplers = tuple(getattr(torch.utils.data, name) for name in drawn)
    if made is not None and isinstance(loader.sampler, samplers):
        effect.keep(replace(made, kind=SHUFFLES))


def note_others(torch: Any, effect: Effect, fix: str) -> None:
    """Those that are gone through and do not feed the steps: a fix leaves them alone, and an edit of the call
    that makes them would not."""
    fed: weakref.WeakSet[Any] = weakref.WeakSet()
    made: weakref.WeakKeyDictionary[Any, Place | None] = weakref.WeakKeyDictionary()
    kind, all_loaders = torch.utils.data.DataLoader, loaders(torch)

    def remember(loader: Any) -> None:
        with contextlib.suppress(Exception):  # fail open: its line is for a patch alone
            made[loader] = place_now(BESIDE, loader)

    def note(loader: Any) -> None:
        place = made.get(loader)
        if place is None or place.library:  # made anew by a library: its dataset tells which one it was
            known = any(one.dataset is loader.dataset for one in fed)
            place = None if known else all_loaders.made_at(loader)
        if place is not None:
            effect.keep(replace(place, kind=BESIDE, takes=(), given=()))

    all_loaders.tell(fed.add)
    by = f"loaders beside: {fix}"
    after_made(by, kind, remember)

    def watched(original: Call) -> Call:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            iterator = original(loader)
            if loader not in fed:
                with contextlib.suppress(Exception):  # fail open: its line is for a patch alone
                    note(loader)
            return iterator

        return iterate

    REGISTRY.wrap(by, kind, "__iter__", watched, past_end=APPLIED)
