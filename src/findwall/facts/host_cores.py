"""The host's cores: what a loader would need to keep up, and those of a CPU job that nobody uses."""

from __future__ import annotations

import re
from math import ceil

import msgspec
import numpy as np

from findwall.facts.best_changes import at_most, best_step, to_floor
from findwall.facts.facts import Facts, of_class, time_of
from findwall.facts.gains import step_ms
from findwall.facts.step_traits import on_cores
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Kind
from findwall.model.intervals import I64, union
from findwall.replay.change import Change
from findwall.step.step_facts import StepFacts
from findwall.step.timed_steps import cores_at_work
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

# Of what the training process makes of a batch in the same time: what a worker does. On an H200's 16 cores it
# was 0.47 where one thread makes a batch, and 0.11 to 0.14 where tensor ops on all of them do.
WORKER_SHARE, MANY_THREADS_SHARE = 0.5, 0.125
# The loader's own range, and ops that only put samples side by side.
_NO_ARITHMETIC = re.compile(
    r"(?i)dataloader|data_?pipe|::(stack|cat|_?pin_memory|is_pinned|empty|resize_|set_)"
)
MOST_WORKERS = 32  # beyond that it is not their number. Chosen by hand, not calibrated.


WAITING_A_CORE = 4  # workers: each has a torch of its own in memory. Chosen by hand.


def is_unseen(facts: StepFacts) -> bool:
    """Whether nothing shows what the host does between its CUDA calls: no ops, no frames, no clock of ours.
    A host that is silent then may be in the loader or anywhere else."""
    kinds, timed = facts.timeline.events.kind, facts.rank.step_times
    is_timed = timed is not None and timed.loader_s is not None
    return not is_timed and not np.isin(kinds, (Kind.OP, Kind.PYTHON)).any()


def cores_while_loading(facts: Facts) -> float | None:
    """Cores that the processes keep busy that make the batches; None: nobody counted.

    The training thread works while it does not wait for them. Where it has more threads than one, theirs are
    counted as the loader's, so that this is the most it may be, unless batches were counted apart.
    """
    cpu = facts.rank.telemetry.cpu
    if cpu is not None and cpu.loading_busy is not None and not facts.rank.loader_workers:
        return cpu.loading_busy
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


def uses_threads(facts: Facts) -> bool | None:
    """Whether more threads than one make a batch, as those of BLAS or OpenMP do, each of which also waits for
    work on a core. In workers they fight for the cores. None: nobody knows."""
    cpu, have, busy = facts.rank.telemetry.cpu, facts.rank.loader_workers, cores_while_loading(facts)
    if cpu is None or busy is None:
        return None
    if have:  # a thread runs or waits for a core, and does not both
        wanted = cpu.children_wanted
        return None if wanted is None else wanted > (1.0 + FAIR_PART) * have
    if cpu.loading_own is not None:
        wanted = busy + (cpu.in_line_share or 0.0)  # others may have had the core of the one that works
        return busy - cpu.loading_own > FAIR_PART * wanted and not only_waits(facts)
    if busy <= 1.0 + FAIR_PART:
        return False
    # Over all of the step: threads of its own may be behind it where batches take little of it.
    mostly_loads = facts.spent_ms("loader-starved") > MAJORITY_SHARE * step_ms(facts)
    return True if mostly_loads else None


def workers_a_core(facts: Facts) -> int:
    """The most that make sense."""
    return WAITING_A_CORE if only_waits(facts) else 1


def shares_of_worker(facts: Facts) -> tuple[float, float]:
    """Of what the training process makes of a batch in the same time: what a worker does on one thread, as it
    likely is and at least. Threads that are busy may all have worked, or have waited for work."""
    if only_waits(facts):
        return 1.0, 1.0
    busy, cores, threads = cores_while_loading(facts), cores_of(facts), uses_threads(facts)
    if threads and busy is not None and not facts.rank.loader_workers:
        share = max(WORKER_SHARE / busy, 1.0 / cores if cores else 0.0)
        return share, share
    if threads is None and computing_share(facts) > MAJORITY_SHARE:
        return MANY_THREADS_SHARE, MANY_THREADS_SHARE
    return WORKER_SHARE, FAIR_PART


def workers_needed(facts: Facts, have: int) -> int | None:
    """The same as a number; None where it is more than anybody has, and nobody counted the cores."""
    cores = cores_of(facts)
    most = min(MOST_WORKERS, workers_a_core(facts) * cores if cores else MOST_WORKERS)
    load = workers_busy(facts, have)
    if not have and cores and most == cores > 2 and _keeps_a_core(facts, cores):
        most -= 1
    needed = max(ceil(load), have + 1, 2) if load is not None else most + 1
    if needed > most:
        return most if cores else None
    return needed


def _keeps_a_core(facts: Facts, cores: int) -> bool:
    """Whether the training process, once it is fed by all cores, has work for most of the time: then it would
    stand in line behind its own workers."""
    load = load_of_batches(facts)
    return load is not None and load / WORKER_SHARE <= cores / MAJORITY_SHARE


def workers_busy(facts: Facts, have: int) -> float | None:
    """How many processes must make batches all the time for the rest of the step; None: for nothing else."""
    if not have:
        load = load_of_batches(facts)
        share = shares_of_worker(facts)[0]
        if uses_threads(facts) is None:  # a number for one thread is better than none for a guess at many
            share = max(share, WORKER_SHARE)
        return None if load is None else load / share
    waited, step = facts.spent_ms("loader-starved"), step_ms(facts)
    return have * step / (step - waited) if step > waited else None


def load_of_batches(facts: Facts) -> float | None:
    """How many training processes would have to make batches for the rest of the step; None: for nothing."""
    waited, step = facts.spent_ms("loader-starved"), step_ms(facts)
    return waited / (step - waited) if step > waited else None


def cores_a_batch(facts: Facts) -> float | None:
    """Cores that one thread keeps busy while it makes batches: what no number of workers makes less of. None
    where nobody counted, or where more threads than one do, of which each may only have waited."""
    cpu = facts.rank.telemetry.cpu
    if cpu is None or cpu.loading_own is None or facts.rank.loader_workers or uses_threads(facts):
        return None
    return cpu.loading_own


def step_on_its_cores(facts: Facts, share: float) -> float | None:
    """Of a CPU job: what a step takes, in ms, once workers make its batches, each at such a share of what the
    training process makes of one: the core seconds of both, on all cores. None where nobody counted."""
    cpu, waited = facts.rank.telemetry.cpu, facts.spent_ms("loader-starved")
    if not on_cores(facts) or cpu is None or not cpu.cores or cpu.own_busy is None or cpu.loading_own is None:
        return None
    taken = cpu.own_busy * step_ms(facts) + waited * cpu.loading_own * (1.0 / share - 1.0)
    return taken / max(cpu.cores - (cpu.others_busy or 0.0), 1.0)


def cores_of(facts: StepFacts) -> int | None:
    """Cores that the job may use, where somebody counted."""
    cpu = facts.rank.telemetry.cpu
    return cpu.cores if cpu is not None else None


def computing_share(facts: StepFacts) -> float:
    """Of the loader's time in the launching threads: what ops on tensors of the host take."""
    loading = facts.host.activities["loader-starved"]
    events = facts.timeline.events
    computes = events.is_kind(Kind.OP) & ~facts.timeline.named(_NO_ARITHMETIC)[events.name]
    rows = np.flatnonzero(computes & np.isin(events.thread, facts.host.threads))
    return (loading & union(events.start[rows], events.end[rows])).length / max(loading.length, 1)


# -- idle cores ----------------------------------------------------------------------------------------


class CoresInUse(msgspec.Struct, frozen=True):
    """Of a CPU job: how many cores its ops keep busy at the most, and how many nobody does."""

    cores: int
    used: float
    idle: float  # 0 where too few for anybody to notice, or where its ops may use all of them already
    threads: int  # that its ops may use

    @property
    def share(self) -> float:
        """Of what an op takes now: what it takes at best, divided evenly among all cores."""
        return min(self.threads / self.cores, 1.0)


def cores_in_use(facts: Facts) -> CoresInUse | None:
    """None where it is no CPU job or nobody counted."""
    likely = facts.reading.likely
    used = cores_at_work(facts.rank.telemetry, likely.busy / max(likely.step, 1.0))
    cpu = facts.rank.telemetry.cpu
    if used is None or cpu is None or not cpu.cores or not on_cores(facts):
        return None
    idle = cpu.cores * (1.0 - used) - (cpu.others_busy or 0.0)
    busy = cpu.cores * used
    # Where nobody looked: a job has whole threads, and Python and the like keep cores busy too.
    threads = cpu.threads or max(int(busy), 1)
    is_noticed = idle >= FAIR_PART * cpu.cores and threads < cpu.cores
    return CoresInUse(cpu.cores, busy, idle if is_noticed else 0.0, threads)


def on_all_cores(facts: WorkFacts, found: CoresInUse) -> Change:
    """Every op of the step divided evenly among all cores: what no number of threads beats."""
    ops = np.flatnonzero(~of_class(facts, "collective"))
    return at_most(facts, ops, found.share)


def saved_on_all_cores_ms(facts: Facts, found: CoresInUse) -> float:
    return ms(facts.step - best_step(facts, on_all_cores(facts, found), ("slow-kernels",)))


def idle_cores_ms(facts: Facts) -> float:
    """What matmuls and convolutions of a CPU job would save on the cores that stand idle, in ms a step."""
    found = cores_in_use(facts)
    if found is None or found.idle <= 0:
        return 0.0
    atoms = facts.atoms_of("slow-kernels")
    slow = time_of(facts, atoms[of_class(facts, *MATRIX_CLASSES)[atoms]])
    return min(slow * (1.0 - found.share), facts.recoverable_ms("slow-kernels") or 0.0)


def on_the_same_cores(facts: Facts, slow: I64) -> Change:
    """Some slow kernels at their floors, less what they would win on idle cores alone."""
    could, idle = facts.recoverable_ms("slow-kernels") or 0.0, idle_cores_ms(facts)
    if idle <= 0 or could <= 0:
        return to_floor(facts, slow)
    own = facts.atoms.own[slow]
    floor = own - np.maximum(own - facts.atoms.floor[slow], 0.0) * max(1.0 - idle / could, 0.0)
    return to_floor(facts, slow, floor)
