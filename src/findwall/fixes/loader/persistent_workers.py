"""Keep the loader's workers from epoch to epoch: `persistent_workers=True`.

What it does:
Without it the workers end with each epoch and start again with the next: processes are spawned, modules
imported, the dataset's index is read and the queue filled, while the device waits. Kept, they pay for that
once. It matters where epochs are short: small datasets, many evaluations, a loader made in a loop.

    loader = DataLoader(dataset, num_workers=8, persistent_workers=True)
    for epoch in range(epochs):
        for batch in loader:
            ...

When it does not help:
Epochs are long beside the start of the workers, or the workers are too slow in every step: then more of them,
or lighter samples, are what is missing. A loader that is made new in each epoch starts new workers all the
same: make it once.

Risk:
The shuffle is another one from the second epoch on, as torch then draws one number less an epoch, and so is
what a dataset draws at random, as kept workers are not seeded again; what is learned depends on neither. The
workers keep their memory between epochs, and a dataset that changes from
epoch to epoch must be told so by other means than its own fields (shared memory, the sampler).
"""

from __future__ import annotations

import weakref
from typing import Any

from findwall.apply.applying import Effect
from findwall.facts.figures import restarting_ms, restarts
from findwall.fixes import Claim, Facts, Fix, Likely, Outcome, Use, ideal, no_use, unclear_if, unless
from findwall.fixes.loader.live_loaders import loaders, workers_of
from findwall.fixes.loader.loader_notes import note_others, note_shuffling
from findwall.fixes.loader.loader_patch import set_in_loader
from findwall.fixes.loader.loader_refusals import LOADER_UNSEEN, loader_waits_little
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL
from findwall.patches.editor import Editor
from findwall.replay.change import Change
from findwall.units import ms

MOVES = ("loader-starved",)


def use(facts: Facts) -> Outcome:
    again = restarts(facts)
    if again is None or restarting_ms(facts) <= 0:
        return no_use("persistent-workers/none-restart")
    often = {"every": again.every, "steps_share": again.share, "restart_ms": again.mean * 1e3}
    return Use(
        Claim("persistent-workers/keep", {**often, "waits_ms": facts.spent_ms("loader-starved")}),
        likely=_likely(facts),
        uncurved=True,
    )


def _likely(facts: Facts) -> Likely | None:
    """Steps that begin an epoch are like the others. What they add to the mean is known where no traced one
    is such a step, or where the device waits for the loader in no others."""
    again = restarting_ms(facts)
    if ms(facts.reading.likely.rare.get("loader-starved", 0.0)) > MAJORITY_SHARE * again:
        return lambda made: Change()
    if again > NEARLY_ALL * facts.spent_ms("loader-starved"):
        return lambda made: ideal(facts, *MOVES)
    return None


def apply(torch: Any, effect: Effect) -> None:
    """Loaders that feed the steps keep their workers; they are seen when the second pass has the same."""
    all_loaders = loaders(torch)
    first: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()  # pass's workers

    def keep(loader: Any) -> None:
        all_loaders.keep_workers(loader)  # without workers it means nothing
        if not all_loaders.keeps(loader):
            effect.missed("a loader keeps its workers already")

    def look(loader: Any, iterator: Any) -> None:
        if effect.seen or not all_loaders.keeps(loader):
            return
        workers = workers_of(iterator)
        if not workers:
            effect.missed("a loader has no workers to keep")
        elif loader not in first:
            first[loader] = workers
            effect.keep(made := all_loaders.made_at(loader))
            note_shuffling(torch, effect, loader, made)
        elif first[loader] == workers:
            effect.saw(f"the same {len(workers)} workers in a loader's second pass")

    effect.missed("no loader that feeds the steps is gone through twice")
    all_loaders.tell(effect.safely(keep), effect.safely(look))
    note_others(torch, effect, "persistent-workers")


def shows(torch: Any, effect: Effect) -> None:
    """Workers that the job keeps itself."""
    first: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
    passed: weakref.WeakSet[Any] = weakref.WeakSet()
    effect.missed("no loader that feeds the steps was seen to keep its workers")

    def look(loader: Any, iterator: Any) -> None:
        workers = workers_of(iterator)
        if workers and first.setdefault(loader, workers) == workers and iterator in passed:
            effect.saw(f"the same {len(workers)} workers in a loader's second pass")
        passed.add(iterator)

    loaders(torch).tell(lambda _loader: None, effect.safely(look))


def patch(editor: Editor) -> None:
    for place in editor.places("loader"):
        set_in_loader(editor, place, persistent_workers="True")


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        LOADER_UNSEEN,
        loader_waits_little,
        unclear_if("persistent-workers/few-steps", lambda facts: facts.reading.source != "measured"),
        unless("persistent-workers/no-workers", lambda facts: not facts.rank.loader_workers),
    ),
    apply=apply,
    shows=shows,
    patch=patch,
    redraws=True,
)
