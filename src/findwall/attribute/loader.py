"""What the data loader would need to keep up."""

from __future__ import annotations

from math import ceil

from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms

AS_MANY_AS_CORES = "num_workers=os.cpu_count()"
MOST_WORKERS = 32  # beyond that it is not their number. Chosen by hand, not calibrated.


def workers_text(facts: Facts, have: int) -> str:
    """How many workers make batches as fast as the rest of the step uses them up; no more than cores."""
    waited, step = facts.spent_ms("loader-starved"), step_ms(facts)
    made = have * step if have else waited  # what one process takes for a batch
    rest = step - waited
    cores = cores_of(facts)
    most = min(MOST_WORKERS, cores or MOST_WORKERS)
    needed = max(ceil(made / rest), have + 1, 2) if rest > 0 else most + 1
    if needed > most:
        return f"num_workers={most}" if cores else AS_MANY_AS_CORES
    return f"num_workers={needed}"


def cores_of(facts: Facts) -> int | None:
    """Cores that the job may use, where somebody counted."""
    cpu = facts.rank.telemetry.cpu
    return cpu.cores if cpu is not None else None
