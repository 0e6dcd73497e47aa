"""What the data loader would need to keep up."""

from __future__ import annotations

from math import ceil

from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms

AS_MANY_AS_CORES = "num_workers=os.cpu_count()"
# Of what the training process makes of a batch in the same time: what a worker does. On an H200's 16 cores it
# was 0.47 where one thread makes a batch, and 0.11 to 0.14 where many do.
WORKER_SHARE = 0.5
MOST_WORKERS = 32  # beyond that it is not their number. Chosen by hand, not calibrated.


def workers_text(facts: Facts, have: int) -> str:
    """How many workers make batches as fast as the rest of the step uses them up; no more than cores."""
    needed = workers_needed(facts, have)
    return AS_MANY_AS_CORES if needed is None else f"num_workers={needed}"


def workers_needed(facts: Facts, have: int) -> int | None:
    """The same as a number; None where it is more than anybody has, and nobody counted the cores."""
    cores = cores_of(facts)
    most = min(MOST_WORKERS, cores or MOST_WORKERS)
    load = workers_busy(facts, have)
    needed = max(ceil(load), have + 1, 2) if load is not None else most + 1
    if needed > most:
        return most if cores else None
    return needed


def workers_busy(facts: Facts, have: int) -> float | None:
    """How many processes must make batches all the time for the rest of the step; None: for nothing else."""
    waited, step = facts.spent_ms("loader-starved"), step_ms(facts)
    made = have * step if have else waited / WORKER_SHARE  # what one worker takes for a batch
    return made / (step - waited) if step > waited else None


def cores_of(facts: Facts) -> int | None:
    """Cores that the job may use, where somebody counted."""
    cpu = facts.rank.telemetry.cpu
    return cpu.cores if cpu is not None else None
