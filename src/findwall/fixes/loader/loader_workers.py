"""Let worker processes make the batches ahead of the step.

What it does:
With `num_workers=0` every batch is read, decoded and collated between two steps. Workers do that
beside the step, several batches ahead:

    DataLoader(dataset, num_workers=8, persistent_workers=True, prefetch_factor=4, pin_memory=True)

The loader keeps up once workers ÷ time per batch exceeds the step rate. No number of workers makes a batch
cost less: its core seconds ÷ cores are the shortest step there is. A job of the CPU needs those cores for its
step as well: where both keep them busy, workers make it longer.

NumPy, OpenCV and their kin start as many threads as there are cores, in every worker: 12 workers are then 192
threads on 16 cores, and slower than none. Workers with one thread each have a core each. OMP_NUM_THREADS and
OPENBLAS_NUM_THREADS set before the start do that in the training process too; in the workers alone, a
`worker_init_fn` that calls `threadpoolctl.threadpool_limits(1)` does. `--apply` and the patch do the same.

When it does not help:
The device never waits for the loader. Or the cores, the disk or the network are the limit: more workers
then only compete. Or all samples need one thing that one process has at a time, as a lock or a server that
answers one by one: while the training process is alone with it, nobody can see that, so a step is predicted
only where one worker would keep up, and `findwall try` shows the rest. Workers that start again with every
epoch are another matter: persistent-workers.

Risk:
Each worker holds a copy of the dataset object in memory. Random augmentation must be seeded by
worker: what a dataset draws at random is drawn there, and no longer from the training process's stream.
The order of samples stays; with `persistent_workers=True` the shuffle is another one from the second epoch
on, as torch then draws one number less an epoch. NumPy's products on one thread may differ in the last digit.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np
from msgspec.structs import replace

from findwall.apply.applying import Effect
from findwall.apply.live_threads import usable_cores
from findwall.facts.best_changes import best_step
from findwall.facts.figures import restarting_ms
from findwall.facts.host_cores import (
    WORKER_SHARE,
    cores_a_batch,
    cores_of,
    cores_while_loading,
    load_of_batches,
    only_waits,
    shares_of_worker,
    step_on_its_cores,
    uses_threads,
    workers_a_core,
    workers_needed,
)
from findwall.fixes import (
    Claim,
    Facts,
    Figure,
    Fix,
    Likely,
    NoUse,
    Outcome,
    Use,
    no_use,
    range_names,
    step_ms,
)
from findwall.fixes.loader.live_loaders import Unchanged, loaders, set_on, workers_of
from findwall.fixes.loader.loader_notes import note_others, note_shuffling
from findwall.fixes.loader.loader_patch import THREADED, set_in_loader, use_one_thread
from findwall.fixes.loader.loader_refusals import LOADER_MISSING, LOADER_UNSEEN, loader_waits_little
from findwall.fixes.loader.worker_threads import OneThreadEach
from findwall.model.applied import Place
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, WORTH_IT
from findwall.patches.editor import Editor
from findwall.replay.change import Change, Elsewhere, HostWork, Measured, Scale, without
from findwall.replay.graph import LAUNCHING
from findwall.step.step_facts import StepFacts

MOVES = ("loader-starved",)
MOST_UNASKED, AHEAD = 8, 4  # workers, and batches each of them makes ahead. Chosen by hand.
# Times as long, beside workers that are busy: seen on one machine with a V100, where four workers took over.
LAUNCHES_BESIDE_WORKERS, COPIES_BESIDE_WORKERS = 1.3, 1.4


def use(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if restarting_ms(facts) > MAJORITY_SHARE * waited:
        return no_use("loader-workers/only-start")
    names, threads = " ".join(range_names(facts)), uses_threads(facts)
    if "_SingleProcessDataLoaderIter" in names:
        workers = workers_needed(facts, 0)
        least, likely = (step_on_its_cores(facts, share) for share in (1.0, _share(facts)))
        if likely is not None and not only_waits(facts) and likely > NEARLY_ALL * step_ms(facts):
            counted = {"cores": cores_of(facts), "least_ms": least, "likely_ms": likely}
            return NoUse(Claim("loader-workers/no-core-left", counted))
        asked = _parameters(workers, threads)
        figures = {"waits_ms": waited, "busy_cores": cores_while_loading(facts) if threads else None, **asked}
        sure = workers is not None and _keep_up(facts, workers) and _one_would_do(facts)
        return Use(
            Claim("loader-workers/none-yet", figures),
            _best(facts),
            likely=(lambda made: _beside(facts, workers or 1, _share(facts))) if sure else None,
            uncurved=True,
            parameters=asked,
        )
    if "_MultiProcessingDataLoaderIter" in names:
        have, cores = facts.rank.loader_workers, cores_of(facts)
        if have and cores and have >= workers_a_core(facts) * cores:
            return no_use("loader-workers/as-many-as-cores", have=have, cores=cores)
        asked = _parameters(workers_needed(facts, have) if have else None, threads)
        hidden = waited < WORTH_IT * step_ms(facts)  # a queue hides that they are no faster than the step
        claim = Claim(
            f"loader-workers/{'hardly-ahead' if hidden else 'more'}",
            {"have": have, "waits_ms": waited, **asked},
        )
        return Use(claim, uncurved=True, parameters=asked)
    asked = _parameters(None, threads)
    return Use(Claim("loader-workers/some", {"waits_ms": waited, **asked}), parameters=asked)


def _parameters(workers: int | None, threads: bool | None) -> dict[str, Figure]:
    """What the loader is given; as many workers as there are cores where nobody knows a number. One thread in
    each is no loss to any of them, so that it is asked for unless batches are known to take no more."""
    given: dict[str, Figure] = {"prefetch": AHEAD}
    if workers is not None:
        given = {"workers": workers, **given}
    return given if threads is False else {**given, "threads": 1}


def _best(facts: Facts) -> Change | None:
    """Batches that take a core's time take it in a worker too, and there are so many cores; of a CPU job the
    rest of its step needs them as well."""
    cores, own = cores_of(facts), cores_a_batch(facts)
    if not cores or not own or only_waits(facts):
        return None
    if (least := step_on_its_cores(facts, 1.0)) is not None:
        return Change((Elsewhere("loader-starved", facts.spent_ms("loader-starved") / least),))
    return Change((Elsewhere("loader-starved", cores / own),))


def _keep_up(facts: Facts, workers: int) -> bool:
    """Whether so many workers do even where each makes far less of a batch than the training process does: it
    may use many cores for one batch, a worker uses one."""
    load = load_of_batches(facts)
    return load is not None and workers * shares_of_worker(facts)[1] >= load


def _one_would_do(facts: Facts) -> bool:
    """Whether one worker alone would keep up: then nothing that they may share (a lock, a disk, a server),
    which the training process has to itself today, keeps several from it."""
    load = load_of_batches(facts)
    return load is not None and load <= _share(facts)


def _share(facts: Facts) -> float:
    """Of what the training process makes of a batch in the same time: what a worker likely does."""
    return shares_of_worker(facts)[0]


def _beside(facts: StepFacts, workers: int, share: float) -> Change:
    """Batches are made ahead, by workers that compete with the training process for memory and cores."""
    copies = facts.queue.row[facts.queue.paced]
    return Change(
        (
            Elsewhere("loader-starved", workers * share),
            HostWork(LAUNCHING, LAUNCHES_BESIDE_WORKERS),
            Scale(copies, np.full(len(copies), COPIES_BESIDE_WORKERS)),
        )
    )


def numbered(facts: Facts, workers: int) -> Outcome:
    """With as many workers as a person asks about."""
    found = FIX.advise(facts)
    if not isinstance(found, Use):
        return found
    found = replace(found, parameters=_parameters(workers, uses_threads(facts)))
    have = facts.rank.loader_workers or 0
    if "_SingleProcessDataLoaderIter" in " ".join(range_names(facts)):
        share = _share(facts)

        def with_share(share: float) -> Likely:
            return lambda made: _beside(facts, workers, share)

        # Half of it or twice: a loader that only waits, for a disk, loses nothing in a worker. Threads that
        # only waited for work are no loss either.
        best = max(share / MAJORITY_SHARE, WORKER_SHARE)
        may = () if _keep_up(facts, workers) else (best, share * MAJORITY_SHARE)
        return replace(found, likely=with_share(share), may=tuple(map(with_share, may)))
    if not have:
        return found
    if workers <= have:
        return no_use("loader-workers/enough", have=have)
    # They are always behind, so that each takes as many steps for a batch as there are of them.
    rest = best_step(facts, without("loader-starved"), MOVES)
    waits = max(have * facts.step / workers - rest, 0.0)
    arriving = Measured("loader-starved", waits, calibration=facts.reading.likely.calibration)
    return replace(found, likely=lambda made: Change((arriving,)))


def sensible_workers() -> int:
    """As many as make sense here, where nobody asks for a number."""
    return max(min(MOST_UNASKED, usable_cores() - 1), 1)


def apply(torch: Any, effect: Effect) -> None:
    """The loaders that feed the steps get workers: as many as asked for, else as many as make sense here."""
    workers = effect.number or sensible_workers()
    all_loaders = loaders(torch)
    changed: weakref.WeakKeyDictionary[Any, Unchanged] = weakref.WeakKeyDictionary()

    def feed(loader: Any) -> None:
        if why := _why_not(torch, loader, workers):
            effect.missed(why)
            return
        changed[loader] = Unchanged(torch, loader)
        set_on(loader, num_workers=workers)
        loader.prefetch_factor = max(loader.prefetch_factor or 0, AHEAD)
        threads = OneThreadEach(torch, loader)
        all_loaders.keep_workers(loader)
        made = all_loaders.made_at(loader)
        effect.keep_value(made, str(workers))
        effect.at_end(functools.partial(_note_threads, effect, threads, made))
        note_shuffling(torch, effect, loader, made)

    def look(loader: Any, iterator: Any) -> None:
        if loader in changed:
            changed.pop(loader).return_if_broken(iterator, effect.cannot)
        there = len(workers_of(iterator))
        if there == workers:
            effect.saw(f"{there} worker{'s' if there != 1 else ''} in a loader{_length(loader)}")

    all_loaders.tell(effect.safely(feed), effect.safely(look))
    note_others(torch, effect, "loader-workers")


def shows(torch: Any, effect: Effect) -> None:
    """Workers that the job gave its loader itself, and that are alive in a pass."""
    wanted = effect.number or 1
    effect.missed("no loader that feeds the steps was seen")

    def look(loader: Any, iterator: Any) -> None:
        there = len(workers_of(iterator))
        if there >= wanted:
            effect.saw(f"{there} worker{'s' if there != 1 else ''} in a loader{_length(loader)}")
        else:
            effect.missed(f"a loader has {there} workers")

    loaders(torch).tell(lambda _loader: None, effect.safely(look))


def _note_threads(effect: Effect, threads: OneThreadEach, made: Place | None) -> str:
    if made is not None and threads.would_use_more:
        effect.keep(replace(made, kind=THREADED))
    return ""


def _why_not(torch: Any, loader: Any, workers: int) -> str:
    """What keeps workers from making this loader's batches; nothing, if none is known to."""
    if loader.num_workers >= workers:
        return f"a loader has {loader.num_workers} workers already"
    if loader.num_workers > 0:  # its dataset is made for workers
        return ""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return "its dataset is a stream, which every worker would repeat"
    processes = torch.multiprocessing
    if (processes.get_start_method(True) or processes.get_all_start_methods()[0]) != "fork":
        return "workers would begin as new processes here, for which a script must be written"
    if processes.current_process().daemon:
        return "the job runs in a process that may start none itself"
    held = getattr(loader.dataset, "__dict__", {}).values()
    each = [one for value in held for one in (value if isinstance(value, list | tuple) else (value,))]
    if any(isinstance(one, torch.Tensor) and one.is_cuda for one in each):
        return "its dataset is on the GPU, from which workers cannot read"
    return ""


def _length(loader: Any) -> str:
    """A sampler need not know how long it is."""
    try:
        return f" of {len(loader)} batches"
    except (TypeError, NotImplementedError):
        return ""


def patch(editor: Editor) -> None:
    for place in editor.places("loader"):
        workers, ahead = place.value, editor.written(place, "prefetch_factor")
        values = {"num_workers": workers, "persistent_workers": "True"}
        if not isinstance(ahead, int) or ahead < AHEAD:
            values["prefetch_factor"] = str(AHEAD)
        set_in_loader(editor, place, **values)
        use_one_thread(editor, place)


FIX = Fix(
    MOVES,
    "safe",
    use,
    (
        LOADER_UNSEEN,
        LOADER_MISSING,
        loader_waits_little,
    ),
    tried=3,
    numbered=numbered,
    apply=apply,
    shows=shows,
    patch=patch,
    redraws=True,
)
