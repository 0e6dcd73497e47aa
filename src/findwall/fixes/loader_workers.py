"""Let worker processes make the batches ahead of the step.

What it does:
With `num_workers=0` every batch is read, decoded and collated between two steps. Workers do that
beside the step, several batches ahead:

    DataLoader(dataset, num_workers=8, persistent_workers=True, prefetch_factor=4, pin_memory=True)

The loader keeps up once workers ÷ time per batch exceeds the step rate.

When it does not help:
The device never waits for the loader. Or the cores, the disk or the network are the limit: more workers
then only compete; OMP_NUM_THREADS left unset makes each of them use all cores.

Risk:
Each worker holds a copy of the dataset object in memory. Random augmentation must be seeded by
worker. Worker processes and the start of an epoch take time: keep them with persistent_workers.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, step_ms
from findwall.attribute.job import range_names
from findwall.attribute.kinds_told import often_text, restarts
from findwall.attribute.loader import AS_MANY_AS_CORES, cores_of, workers_text
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.model.catalogue import WAITED_FOR_SHARE
from findwall.units import format_ms

MOVES = ("loader-starved",)


def advise(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if waited <= WAITED_FOR_SHARE * step_ms(facts):
        return NoUse(f"the device waits only {a_step(waited)} for the loader")
    again = restarts(facts)
    if again is not None:
        return use(
            f"Use `DataLoader(…, persistent_workers=True)`: the workers restart in {often_text(again)}, "
            "which "
            f"takes {format_ms(again.mean * 1e3)}, and the device waits {a_step(waited)} for them."
        )
    names = " ".join(range_names(facts))
    rest = "persistent_workers=True, prefetch_factor=4"
    if "_SingleProcessDataLoaderIter" in names:
        return use(
            f"Use `DataLoader(…, {workers_text(facts, 0)}, {rest})`: without workers, each batch is made "
            "between "
            f"two steps ({a_step(waited)})."
        )
    if "_MultiProcessingDataLoaderIter" in names:
        have, cores = facts.rank.loader_workers, cores_of(facts)
        if have and cores and have >= cores:
            return NoUse(f"there are {have} workers for {cores} cores already")
        more, whom = AS_MANY_AS_CORES, "the workers there are"
        if have:
            more, whom = workers_text(facts, have), f"the {have} workers there are"
        return use(
            f"Give the loader more workers ({more}, {rest}): the device still waits {a_step(waited)} for "
            f"{whom}."
        )
    return use(
        f"Let workers make batches ahead of the step (num_workers, {rest}): the device waits "
        f"{a_step(waited)}."
    )


FIX = Fix(MOVES, "safe", advise, tried=3)
