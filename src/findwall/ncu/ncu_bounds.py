"""What holds up each kernel that Nsight Compute counted: its bound, its cause, and the time it cannot beat.

Counters say how much of each unit's peak a kernel used, so its floor needs no shapes: with the most used of
its ceilings used whole, it takes that share of its time. Names say the class, as in a trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from findwall.model.catalogue import (
    FAIR_PART,
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    NEAR,
    NEARLY_ALL,
    SMALL_PART,
    WORTH_IT,
)
from findwall.model.causes import UNKNOWN
from findwall.model.events import Kind
from findwall.model.machine import Ceilings
from findwall.model.ncu_kernel import NcuKernel
from findwall.step.kernel_classes import classify, math_in_name, uses_tensor_cores
from findwall.step.kernel_names.name_parts import telling_part
from findwall.work.floors import ALIGNED
from findwall.work.hardware_counters import TENSOR_CEILING
from findwall.work.work_facts import TOO_SMALL_NS

ONE_WAVE = 1.0
# Products of a generation before, by their names: on the GPU at hand they take more cycles of the pipe.
OF_BEFORE = re.compile(r"cutlass_[78]\d_|ampere_|turing_|volta_|sm[78]\d|wmma")
OWN_INSTRUCTIONS = re.compile(r"nvjet|sm9\d|sm1\d\d|gmma|hopper|blackwell|tcgen")
HOPPER, BLACKWELL = 9, 10
# Of a Hopper's tensor pipe: what a product needs with its own instructions, where those of the generation
# before keep it busy all the time. 4096^3 in bf16 on an H200: 256,000 cycles against 516,000.
HOPPER_SHARE = 0.5
MOVERS = ("copy", "gather", "memcpy")  # what they compute is only where to read
SLOW_CAUSE = {"copy": "layout-copies", "gather": "gather-scatter"}


class Merged(msgspec.Struct, frozen=True):
    """Launches of one kernel with one grid: figures are means, weighted by time where they are shares."""

    kernel: NcuKernel
    calls: int

    @property
    def total_ns(self) -> float:
        return self.calls * (self.kernel.duration_ns or 0.0)


class Judged(Merged, frozen=True):
    """One merged kernel and what is made of it."""

    class_: str
    bound: str  # as in `BOUNDS`
    cause: str
    why: str  # which sentence it gets: see `examine/ncu_words.py`
    floor_share: float | None  # of its time; None unknown


def merge(kernels: Iterable[NcuKernel]) -> list[Merged]:
    """By name, grid and block; the longest first."""
    groups: dict[tuple[object, ...], list[NcuKernel]] = {}
    for one in kernels:
        groups.setdefault((one.name, one.grid, one.block), []).append(one)
    found = [Merged(_mean(group), len(group)) for group in groups.values()]
    return sorted(found, key=lambda one: -one.total_ns)


_SHARES = ("dram", "memory", "sm", "tensor", "occupancy", "wasted", "bank_conflicts")


def _mean(group: list[NcuKernel]) -> NcuKernel:
    if len(group) == 1:
        return group[0]
    longest = max(group, key=lambda one: one.duration_ns or 0.0)
    times = [one.duration_ns or 0.0 for one in group]
    total = sum(times)

    def mean(field: str, weights: list[float]) -> float | None:
        values = [getattr(one, field) for one in group]
        if any(value is None for value in values):
            return None
        return float(
            sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
        )

    even = [1.0] * len(group)
    shares = {field: mean(field, times) for field in _SHARES}
    counts = {field: mean(field, even) for field in ("dram_bytes", "spills")}
    return msgspec.structs.replace(longest, duration_ns=total / len(group), **shares, **counts)


def memory_ceiling(ceilings: Ceilings) -> float:
    """What of its peak bandwidth the device's memory reaches."""
    if ceilings.bandwidth and ceilings.spec_bandwidth:
        return min(ceilings.bandwidth / ceilings.spec_bandwidth, 1.0)
    return NEARLY_ALL  # what large copies reach on most GPUs


def pipe_worth(kernel: NcuKernel) -> float | None:
    """What of the tensor pipe's busy time the same product needs with this GPU's own instructions.

    Newer GPUs run the instructions of older ones on a part of their tensor cores. None: it is unknown which
    ones a kernel uses.
    """
    name = telling_part(kernel.name)
    if kernel.capability is not None and kernel.capability not in (HOPPER, BLACKWELL):
        return 1.0  # one set of instructions
    if kernel.gmma is not None and kernel.capability == HOPPER:
        return 1.0 if kernel.gmma > 0 else HOPPER_SHARE
    if OF_BEFORE.search(name):
        return HOPPER_SHARE if kernel.capability == HOPPER else None
    return 1.0 if OWN_INSTRUCTIONS.search(name) else None


def judge(one: Merged, ceilings: Ceilings) -> Judged:
    """The strongest claim that its counters support; unknown where a counter that decides is missing."""
    seen = _Seen(one, ceilings)
    claims: tuple[Callable[[_Seen], Judged | None], ...] = (
        _too_small,
        *((_product_roof, _misaligned, _fast_path_off) if seen.is_matrix else (_vector_roof,)),
        _slow,
    )
    if not seen.is_known or seen.class_ == "collective":
        return seen.judged("unknown", UNKNOWN, "unknown", None)
    return next(found for claim in claims if (found := claim(seen)) is not None)


class _Seen:
    """A kernel's shares of what its units can reach."""

    def __init__(self, one: Merged, ceilings: Ceilings) -> None:
        kernel = one.kernel
        self.kernel, self.calls, self.ceilings = kernel, one.calls, ceilings
        self.class_ = classify(kernel.name, None, Kind.KERNEL)
        self.is_matrix = self.class_ in MATRIX_CLASSES
        self.time = kernel.duration_ns or 0.0
        self.is_known = kernel.dram is not None and kernel.sm is not None
        self.dram = min((kernel.dram or 0.0) / memory_ceiling(ceilings), 1.0)
        self.sm = kernel.sm or 0.0
        self.worth = pipe_worth(kernel)
        # The busiest pipe is at least as busy as the tensor pipe.
        pipe = kernel.tensor if kernel.tensor is not None else self.sm
        self.tensor = min(pipe * (self.worth or 1.0) / TENSOR_CEILING, 1.0)
        self.arithmetic = (
            self.tensor
            if self.is_matrix
            else 0.0
            if self.class_ in MOVERS
            else max(self.sm, self.tensor_known)
        )

    @property
    def tensor_known(self) -> float:
        return min((self.kernel.tensor or 0.0) * (self.worth or 1.0) / TENSOR_CEILING, 1.0)

    @property
    def floor(self) -> float:
        return max(self.dram, self.arithmetic)

    def judged(self, bound: str, cause: str, why: str, floor: float | None) -> Judged:
        return Judged(self.kernel, self.calls, self.class_, bound, cause, why, floor)


def _too_small(seen: _Seen) -> Judged | None:
    busiest = max(seen.dram, seen.sm, seen.kernel.memory or 0.0)
    if seen.time > TOO_SMALL_NS or busiest >= MAJORITY_SHARE:
        return None
    return seen.judged("latency", "launch-bound", "too-small", seen.floor)


def _product_roof(seen: _Seen) -> Judged | None:
    if seen.dram >= NEAR and seen.dram >= seen.tensor_known:
        return seen.judged("bandwidth", "memory-roof", "memory-roof", seen.dram)
    if seen.tensor < NEAR:
        return None
    if _is_without_tensor_cores(seen):
        return None
    if seen.kernel.tensor is None or seen.worth is None:
        # Some pipe is busy. Whether it is the tensor cores', and with their own instructions, decides.
        return seen.judged("compute", UNKNOWN, "no-tensor-counter", None)
    return seen.judged("compute", "at-the-roof", "product-roof", seen.tensor)


def _misaligned(seen: _Seen) -> Judged | None:
    """A tensor-core kernel for 16-bit operands that was picked because they do not lie on 16 bytes."""
    name = seen.kernel.name
    part = telling_part(name)
    told = ALIGNED.read(part) is False and "align" in part
    if not told or uses_tensor_cores(name) is not True or math_in_name(name) not in ("fp16", "bf16"):
        return None
    floor = None if seen.worth is None else seen.floor
    return seen.judged("compute", "misaligned-shapes", "misaligned", floor)


def _is_without_tensor_cores(seen: _Seen) -> bool:
    if seen.kernel.tensor is not None:
        return seen.kernel.tensor < WORTH_IT  # it shares counters with others: less is nothing
    return uses_tensor_cores(seen.kernel.name) is False


def _fast_path_off(seen: _Seen) -> Judged | None:
    """A product in fp32 on the vector pipe, where tensor cores could serve."""
    if seen.class_ == "attention" or not _is_without_tensor_cores(seen):
        return None
    if seen.sm < MAJORITY_SHARE or math_in_name(seen.kernel.name) not in (None, "fp32"):
        return None
    vector, short = (seen.ceilings.flops.get(name) for name in ("fp32", "tf32"))
    floor = max(seen.sm * vector / short, seen.dram) if vector and short and short > vector else None
    return seen.judged("compute", "fast-path-off", "fast-path-off", floor)


def _vector_roof(seen: _Seen) -> Judged | None:
    if seen.dram >= NEAR:
        cause = "layout-copies" if seen.class_ == "copy" else "memory-roof"
        return seen.judged("bandwidth", cause, "memory-roof", seen.dram)
    if seen.arithmetic >= NEAR:
        return seen.judged("compute", "at-the-roof", "vector-roof", seen.arithmetic)
    if (seen.kernel.memory or 0.0) < NEAR or (seen.kernel.wasted or 0.0) >= SMALL_PART:
        return None
    if seen.kernel.wasted is None:  # a cache is busy, and whether with what it must move decides
        return seen.judged("bandwidth", UNKNOWN, "no-sector-counter", None)
    return seen.judged("bandwidth", "memory-roof", "cache-roof", seen.kernel.memory)


def _slow(seen: _Seen) -> Judged | None:
    if (seen.kernel.memory or 0.0) >= MAJORITY_SHARE:
        bound = "bandwidth"
    else:
        bound = "compute" if seen.sm >= MAJORITY_SHARE else "latency"
    # Without the instructions it is unknown what the tensor cores' busy time is worth.
    is_blind = seen.is_matrix and seen.worth is None and not _is_without_tensor_cores(seen)
    floor = None if is_blind else seen.floor
    return seen.judged(bound, SLOW_CAUSE.get(seen.class_, "slow-kernels"), _why_slow(seen), floor)


def _why_slow(seen: _Seen) -> str:
    """What is most likely wrong, the surest sign first."""
    kernel = seen.kernel
    if (kernel.wasted or 0.0) >= FAIR_PART:
        return "uncoalesced"
    if kernel.spills:
        return "spills"
    if kernel.waves is not None and kernel.waves < ONE_WAVE:
        return "few-blocks"
    if (kernel.bank_conflicts or 0.0) >= FAIR_PART:
        return "bank-conflicts"
    if kernel.most_occupancy is not None and kernel.most_occupancy <= MAJORITY_SHARE and kernel.limited_by:
        return "occupancy"
    return "stall" if kernel.stall is not None else "slow"
