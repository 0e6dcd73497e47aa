"""Cores of a CPU job that nobody uses, and what they could take over."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.device_time import of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.job import on_cores
from findwall.attribute.timed_steps import cores_at_work
from findwall.attribute.whatif import at_most, best_step, ideal, to_floor
from findwall.model.catalogue import FAIR_PART, MATRIX_CLASSES
from findwall.replay.change import Change
from findwall.units import ms


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


def on_all_cores(facts: Facts, found: CoresInUse) -> Change:
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
    saved = slow * (1.0 - found.share)
    return min(saved, facts.recoverable_ms("slow-kernels") or 0.0)


def apart_from_idle_cores(facts: Facts, *causes: str) -> Change:
    """What these causes could give back at best, less what slow kernels would win on idle cores alone."""
    slow = facts.atoms_of("slow-kernels")
    could, idle = facts.recoverable_ms("slow-kernels") or 0.0, idle_cores_ms(facts)
    if idle <= 0 or could <= 0:
        return ideal(facts, *causes)
    own = facts.atoms.own[slow]
    floor = own - np.maximum(own - facts.atoms.floor[slow], 0.0) * max(1.0 - idle / could, 0.0)
    return to_floor(facts, slow, floor) + ideal(facts, *(one for one in causes if one != "slow-kernels"))
