"""Do not let the job's own threads fight for the cores: fewer threads in each process.

What it does:
NumPy, OpenCV, torch's CPU ops and their kin start as many threads as the machine has cores, in every process.
Eight workers on 16 cores are then 128 threads, and the thread that launches the step has to wait for
its turn. With workers × threads no more than the cores, nobody waits for a core:

    OMP_NUM_THREADS=1 python train.py                             # libraries; torchrun sets it by itself
    DataLoader(…, worker_init_fn=lambda _: cv2.setNumThreads(0))  # OpenCV has a switch of its own

DataLoader workers already run torch's own ops on one thread.

When it does not help:
The loader has no workers: one process alone does not fight with itself. Torch's ops have no more threads than
their share of the cores already. The training thread always has a core, or other people's processes take them
(taskset, another machine). A CPU job whose ops leave cores idle needs more threads, not fewer: more-threads.

Risk:
None for the results, but sums in another order. One large op on the host (a sort, a decode of video) takes
longer on fewer threads.
"""

from __future__ import annotations

import functools
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.live_threads import hold_threads, on_one_thread, usable_cores
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, cannot_tell, gain_ms, ideal, no_use, step_ms
from findwall.fixes.host.threads_patch import hold_in_script
from findwall.fixes.loader.live_loaders import loaders, workers_of
from findwall.model.catalogue import MENTION_SHARE, NEARLY_ALL
from findwall.patches.editor import Editor
from findwall.replay.change import Change, HostWork
from findwall.replay.graph import LAUNCHING
from findwall.step.timed_steps import in_line_share

MOVES = ("launch-bound", "host-work", "loader-starved")


def use(facts: Facts) -> Outcome:
    cpu = facts.rank.telemetry.cpu
    if cpu is None or cpu.cores is None or cpu.own_busy is None or cpu.in_line_share is None:
        return cannot_tell("omp-threads/uncounted")
    if cpu.others_busy is None:
        return cannot_tell("omp-threads/shared")
    workers = facts.rank.loader_workers
    if not workers:  # the fix shares the cores among processes, and there is only one
        return no_use("omp-threads/no-workers")
    share = in_line_share(facts.rank)
    if share < MENTION_SHARE:
        return no_use("omp-threads/hardly-waits")
    others = cpu.others_busy or 0.0
    if cpu.own_busy + others < NEARLY_ALL * cpu.cores or others > cpu.own_busy:
        return no_use("omp-threads/others")
    if (waited := gain_ms(facts, *MOVES)) <= MENTION_SHARE * step_ms(facts):
        return no_use("omp-threads/hidden")
    each = max(cpu.cores // (workers + 1), 1)
    # Workers that want no more than a core each have no threads that could be too many.
    at_most_one_each = cpu.children_wanted is not None and cpu.children_wanted <= workers
    if cpu.threads is not None and cpu.threads <= each and at_most_one_each:
        return no_use("omp-threads/few", threads=cpu.threads)
    cores = {"threads": each, "workers": workers, "cores": cpu.cores, "busy_cores": cpu.own_busy}
    return Use(
        Claim("omp-threads/set", {**cores, "in_line_share": share, "waits_ms": waited}),
        _best(facts, share),
        parameters={"threads": each},
    )


def _best(facts: Facts, share: float) -> Change:
    """The thread that launches always has a core; workers that do not fight may keep up."""
    own = tuple(HostWork(cause, 1.0 - share) for cause in (LAUNCHING, "host-work"))
    return Change(own) + ideal(facts, "loader-starved")


def apply(torch: Any, effect: Effect) -> None:
    """Where a loader that feeds the steps has workers: their libraries on one thread each, and the training
    process on the cores that are left to it."""
    held: list[int] = []

    def limit(loader: Any) -> None:
        loader.worker_init_fn = functools.partial(on_one_thread, loader.worker_init_fn)

    def share(_loader: Any, iterator: Any) -> None:
        workers = len(workers_of(iterator))
        if workers and not held:
            held.append(max(usable_cores() // (workers + 1), 1))
            hold_threads(torch, effect, "omp-threads", held[0])

    effect.missed("no loader that feeds the steps has workers")
    loaders(torch).tell(effect.safely(limit), effect.safely(share))


def patch(editor: Editor) -> None:
    """Workers of torch are on one thread already; OpenCV in them has a switch of its own."""
    hold_in_script(editor)
    for path in dict.fromkeys(spot.file for place in editor.places("script") for spot in place.spots):
        edits = editor.file(path)
        if (opencv := edits.source.name_of("cv2")) is not None:
            edits.at_start(f"{opencv}.setNumThreads(0)")


FIX = Fix(MOVES, "safe", use, apply=apply, patch=patch, reorders=True)
