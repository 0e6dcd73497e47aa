"""What of a job the checks need and its document does not hold."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, of_class
from findwall.facts.host_cores import workers_a_core
from findwall.facts.memory_copies import downloaded, uploaded
from findwall.facts.step_traits import graph_share
from findwall.machine.gpu_table import vendor
from findwall.model.catalogue import MATRIX_CLASSES, UNNEEDED
from findwall.model.machine import MATH_TYPES, Telemetry
from findwall.model.measured_run import Rank, Run
from findwall.step.links import TELLS_MEMORY
from findwall.units import NOT_ZERO_NS, ms
from findwall.work.work_facts import WorkFacts

NARROWEST_SHARE = 0.5  # of a product's bytes: what no narrower format that is advised goes below


class Circumstances(msgspec.Struct, frozen=True):
    """Facts of the job behind a document. Without a trace most of them are not known, and forbid nothing."""

    device_kind: str = "gpu"
    vendor: str = ""  # "nvidia", "amd"; empty: unknown
    cores: int | None = None  # that the job may use
    workers_a_core: int = 1  # of the loader, at most: more where they only wait
    replayed_share: float = 0.0  # of the device's rows: launched by a graph
    copies_tell_memory: bool = False  # the copies' names say whether memory is pinned or pageable
    clocks_sampled: bool = False
    longest_small_ms: float = 0.0  # of the kernels that launch-bound holds for too small
    lowest_at_roof: float | None = None  # what the farthest of the kernels at a roof reaches of its ceiling
    least_ms: float = 0.0  # a step's products at the data sheet's best rate: no fix goes below


def circumstances(facts: Facts) -> Circumstances:
    """Of a job whose device was traced."""
    rank = facts.rank
    return Circumstances(
        device_kind=rank.device_kind,
        vendor=vendor(facts.ceilings.device or facts.run.device_name or ""),
        cores=_cores(rank.telemetry),
        workers_a_core=workers_a_core(facts),
        replayed_share=graph_share(facts),
        copies_tell_memory=_copies_tell_memory(facts),
        clocks_sampled=rank.telemetry.sm_clock_mhz is not None,
        longest_small_ms=_longest_small(facts),
        lowest_at_roof=_lowest_at_roof(facts),
        least_ms=_least(facts),
    )


def circumstances_without_trace(run: Run, rank: Rank) -> Circumstances:
    """Of a job of which only timings and counters are known."""
    return Circumstances(
        device_kind=rank.device_kind,
        vendor=vendor(run.device_name or ""),
        cores=_cores(rank.telemetry),
        clocks_sampled=rank.telemetry.sm_clock_mhz is not None,
    )


def _cores(telemetry: Telemetry) -> int | None:
    return telemetry.cpu.cores if telemetry.cpu is not None else None


def _copies_tell_memory(facts: WorkFacts) -> bool:
    return bool(matching(facts, np.concatenate([uploaded(facts), downloaded(facts)]), TELLS_MEMORY).any())


def _longest_small(facts: WorkFacts) -> float:
    index = facts.atoms.index[facts.atoms.of("launch-bound")]
    return ms(float(facts.kernels.duration[index].max(initial=0)))


def _lowest_at_roof(facts: WorkFacts) -> float | None:
    atoms = np.concatenate([facts.atoms.of("at-the-roof"), facts.atoms.of("memory-roof")])
    atoms = atoms[facts.atoms.own[atoms] > 0]
    if len(atoms) == 0:
        return None
    return float(np.nan_to_num(facts.atoms.floor[atoms] / facts.atoms.own[atoms]).min())


def _least(facts: Facts) -> float:
    """Matmuls, convolutions and attention stay, whatever is fused or narrowed: at the data sheet's best."""
    ceilings = facts.ceilings
    best = max(ceilings.spec_flops.values(), default=0.0)
    if not best or not ceilings.spec_bandwidth or not ceilings.bandwidth:
        return 0.0
    stay = of_class(facts, *MATRIX_CLASSES) & ~facts.kernels.recompute[facts.atoms.index]
    stay[np.concatenate([facts.atoms.of("unfused-attention"), facts.atoms.of(UNNEEDED)])] = False
    atoms = np.flatnonzero(stay)
    index = facts.atoms.index[atoms]
    rates = np.array([ceilings.flops.get(name, 0.0) for name in MATH_TYPES] + [0.0])
    arithmetic = rates[facts.kernels.math_index[index]] / best
    narrowed = NARROWEST_SHARE * ceilings.bandwidth / ceilings.spec_bandwidth
    share = np.minimum(np.minimum(arithmetic, narrowed), 1.0)
    floor = np.nan_to_num(facts.kernels.floor[index]) / np.maximum(facts.kernels.duration[index], NOT_ZERO_NS)
    return ms(float((facts.own[atoms] * floor * share).sum()))
