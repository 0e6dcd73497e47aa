"""Let worker processes make the batches ahead of the step.

What it does:
With `num_workers=0` every batch is read, decoded and collated between two steps. Workers do that
beside the step, several batches ahead:

    DataLoader(dataset, num_workers=8, persistent_workers=True, prefetch_factor=4, pin_memory=True)

The loader keeps up once workers ÷ time per batch exceeds the step rate.

When it does not help:
The loader is never waited for. Or the cores, the disk or the network are the limit: more workers
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
from findwall.attribute.loader import workers_text
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.model.catalogue import WAITED_FOR_SHARE
from findwall.units import format_ms

MOVES = ("loader-starved",)


def advise(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if waited <= WAITED_FOR_SHARE * step_ms(facts):
        return NoUse(f"the loader is never waited for ({a_step(waited)})")
    again = restarts(facts)
    if again is not None:
        return use(
            f"`DataLoader(…, persistent_workers=True)`: the workers start again in {often_text(again)}, "
            f"which takes {format_ms(again.mean * 1e3)}; {a_step(waited)} are waited for."
        )
    names = " ".join(range_names(facts))
    rest = "persistent_workers=True, prefetch_factor=4"
    if "_SingleProcessDataLoaderIter" in names:
        return use(
            f"`DataLoader(…, {workers_text(facts, 0)}, {rest})`: num_workers is 0, so each batch is made "
            f"between two steps ({a_step(waited)})."
        )
    if "_MultiProcessingDataLoaderIter" in names:
        return use(
            f"Raise num_workers as far as the cores carry it ({rest}): there are workers, and the "
            f"device still "
            f"waits {a_step(waited)} for them."
        )
    return use(
        f"Make batches ahead of the step in workers (num_workers, {rest}): {a_step(waited)} are waited for."
    )


FIX = Fix(MOVES, "safe", advise, tried=3)
