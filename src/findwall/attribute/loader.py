"""What the data loader would need to keep up."""

from __future__ import annotations

import re
from math import ceil

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import union

AS_MANY_AS_CORES = "num_workers=os.cpu_count()"
# Of what the training process makes of a batch in the same time: what a worker does. On an H200's 16 cores it
# was 0.47 where one thread makes a batch, and 0.11 to 0.14 where many do.
WORKER_SHARE = 0.5
# The loader's own range, and ops that only put samples side by side.
_NO_ARITHMETIC = re.compile(
    r"(?i)dataloader|data_?pipe|::(stack|cat|_?pin_memory|is_pinned|empty|resize_|set_)"
)
MOST_WORKERS = 32  # beyond that it is not their number. Chosen by hand, not calibrated.


WAITING_A_CORE = 4  # workers: each has a torch of its own in memory. Chosen by hand.


def is_unseen(facts: Facts) -> bool:
    """Whether nothing shows what the host does between its CUDA calls: no ops, no frames, no clock of ours.
    A host that is silent then may be in the loader or anywhere else."""
    kinds, timed = facts.timeline.events.kind, facts.rank.step_times
    is_timed = timed is not None and timed.loader_s is not None
    return not is_timed and not np.isin(kinds, (Kind.OP, Kind.PYTHON)).any()


def cores_while_loading(facts: Facts) -> float | None:
    """Cores that the processes keep busy that make the batches; None: nobody counted.

    The training thread works while it does not wait for them. Where it has more threads than one, theirs are
    counted as the loader's, so that this is the most it may be.
    """
    cpu = facts.rank.telemetry.cpu
    share = facts.spent_ms("loader-starved") / step_ms(facts)
    if cpu is None or cpu.own_busy is None or share <= 0:
        return None
    busy = max(cpu.own_busy - (1.0 - share), 0.0)
    return busy if facts.rank.loader_workers else busy / share


def only_waits(facts: Facts) -> bool:
    """Whether making batches is waiting, for storage or for a server: cores are no limit to that. Waiting for
    a core that another process has is none of it, whoever that is."""
    busy, cpu, workers = cores_while_loading(facts), facts.rank.telemetry.cpu, facts.rank.loader_workers
    if busy is None or cpu is None:
        return False
    wanted = busy + (cpu.in_line_share or 0.0)
    if workers and cpu.children_wanted is not None:  # of them alone: other threads' work is none of theirs
        wanted = cpu.children_wanted
    return wanted < MAJORITY_SHARE * max(workers or 0, 1)


def workers_a_core(facts: Facts) -> int:
    """The most that make sense."""
    return WAITING_A_CORE if only_waits(facts) else 1


def share_of_worker(facts: Facts) -> float:
    """Of what the training process makes of a batch in the same time: what a worker does."""
    return 1.0 if only_waits(facts) else WORKER_SHARE


def workers_needed(facts: Facts, have: int) -> int | None:
    """The same as a number; None where it is more than anybody has, and nobody counted the cores."""
    cores = cores_of(facts)
    most = min(MOST_WORKERS, workers_a_core(facts) * cores if cores else MOST_WORKERS)
    load = workers_busy(facts, have)
    needed = max(ceil(load), have + 1, 2) if load is not None else most + 1
    if needed > most:
        return most if cores else None
    return needed


def workers_busy(facts: Facts, have: int) -> float | None:
    """How many processes must make batches all the time for the rest of the step; None: for nothing else."""
    waited, step = facts.spent_ms("loader-starved"), step_ms(facts)
    made = have * step if have else waited / share_of_worker(facts)  # what one worker takes for a batch
    return made / (step - waited) if step > waited else None


def cores_of(facts: Facts) -> int | None:
    """Cores that the job may use, where somebody counted."""
    cpu = facts.rank.telemetry.cpu
    return cpu.cores if cpu is not None else None


def computing_share(facts: Facts) -> float:
    """Of the loader's time in the launching threads: what ops on tensors of the host take."""
    loading = facts.host.activities["loader-starved"]
    events = facts.timeline.events
    computes = events.is_kind(Kind.OP) & ~facts.timeline.named(_NO_ARITHMETIC)[events.name]
    rows = np.flatnonzero(computes & np.isin(events.thread, facts.host.threads))
    working = union(events.start[rows], events.end[rows])
    return (loading & working).length / max(loading.length, 1)
