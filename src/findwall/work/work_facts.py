"""What is known of the work of a step: what each kernel is, computes, moves and cannot beat, and whose cause
its time is. Only the columns are here; the other files of the room, and the budget of causes, fill them."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
import numpy as np

from findwall.model.catalogue import (
    CLASS_INDEX,
    KERNEL_CLASSES,
    MAJORITY_SHARE,
)
from findwall.model.causes import cause_index
from findwall.model.events import Bool, Timeline
from findwall.model.intervals import F64, I8, I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS, Ceilings
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_S

Amount = TypeVar("Amount", float, F64)
BOUNDS = ("compute", "bandwidth", "latency", "unknown")


class KernelTable(msgspec.Struct, frozen=True):
    """One entry a device row (kernel, memcpy, memset), in row order."""

    row: I64
    start: I64
    end: I64
    op: I64  # the op that owns the work: nearest one with a model, else the innermost; -1 none
    class_index: I8  # -> KERNEL_CLASSES
    math_index: I8  # -> MATH_TYPES; -1 unknown
    flops: F64  # NaN unknown. Of pointwise work: operations of the vector pipe
    bytes: F64  # NaN unknown
    floor: F64  # ns, never above the row's own duration; NaN unknown
    bound: I8  # -> BOUNDS
    misaligned: Bool
    fast_path_off: Bool
    better_floor: F64  # ns at the ceiling a correct shape or type reaches; NaN where neither is wrong
    recompute: Bool
    communication: Bool
    above_spec: Bool
    modelled: Bool  # FLOPs and bytes are known
    cast: Bool  # a copy that changes the type
    orphan: Bool  # its launch is not in the trace

    @property
    def duration(self) -> I64:
        return self.end - self.start

    def is_class(self, *names: str) -> Bool:
        return np.isin(self.class_index, [CLASS_INDEX[name] for name in names])


class Fused(msgspec.Struct, frozen=True):
    """What fusing every chain would do to each kernel: bytes."""

    saved: F64  # need not be moved
    again: F64  # must be read a second time, in whatever chain
    chained: Bool  # of an op that a chain takes in


class DeviceAtoms(msgspec.Struct, frozen=True):
    """Device rows of the window: own time, cause, and what of it must remain."""

    index: I64  # into the KernelTable
    own: F64  # ns over the whole window
    cause: I64  # -> CAUSES
    floor: F64  # ns of `own` that no fix of this cause can take; NaN unknown

    def of(self, cause: str) -> I64:
        """Positions of the atoms of one cause."""
        return np.flatnonzero(self.cause == cause_index(cause))


class Matched(msgspec.Struct, frozen=True):
    """Bytes by device row, and how much of the profile found its kernel."""

    nbytes: F64  # one entry a device row; NaN: not counted
    launches: int  # that were profiled
    unmatched: int  # of them: with no kernel of the trace that is surely the same
    rows: int  # of the trace that got counted bytes
    kernels: int  # of the trace


class WorkFacts(StepFacts, frozen=True, dict=True):
    """The step with the work that its kernels do, against what the machine can do."""

    ceilings: Ceilings
    kernels: KernelTable
    atoms: DeviceAtoms
    profiled: Matched | None  # kernels whose bytes Nsight Compute counted

    def kernel_name(self, atom: int) -> str:
        return self.timeline.name_of(int(self.kernels.row[self.atoms.index[atom]]))

    def op_row(self, atom: int) -> int:
        return int(self.kernels.op[self.atoms.index[atom]])

    def op_name(self, atom: int) -> str | None:
        row = self.op_row(atom)
        return self.timeline.name_of(row) if row >= 0 else None

    def kernel_class(self, atom: int) -> str:
        return KERNEL_CLASSES[int(self.kernels.class_index[self.atoms.index[atom]])]

    def math(self, atom: int) -> str | None:
        index = int(self.kernels.math_index[self.atoms.index[atom]])
        return MATH_TYPES[index] if index >= 0 else None


def moving_ns(facts: WorkFacts, nbytes: Amount) -> Amount:
    """As long as the device's memory takes at best for so many bytes; no time where its rate is not known."""
    return nbytes / (facts.ceilings.bandwidth or np.inf) * NS_PER_S


def ops_named(timeline: Timeline, ops: I64, pattern: re.Pattern[str]) -> Bool:
    """In the names of which ops the pattern is found; no op (-1) has none."""
    return (ops >= 0) & timeline.named(pattern)[timeline.events.name[np.maximum(ops, 0)]]


# Start-up and tail of a kernel: one that this explains is too small to reach either ceiling.
START_NS = 5000.0


# A kernel this short is of the order of the device's own minimum: no better kernel helps, but fewer of them.
TOO_SMALL_NS = 2 * START_NS


def fast_format(ceilings: Ceilings, now: str = "fp32") -> str | None:
    """The format in which the device does products that a job does in another, the nearest that is worth it;
    None where none is. Tensor cores do fp32 ones in TF32 or 16 bits, and TF32 is no faster than fp32 on many
    cards that have it. Cores that lack arithmetic in 16 bits do such products in fp32."""
    formats: tuple[str, ...]
    if ceilings.of_cores:
        formats = ("fp32",) if now in SIXTEEN_BITS else ()
    else:  # every GPU with tensor cores has TF32 or fp16
        now, formats = "fp32", ("tf32", "bf16") if "tf32" in ceilings.flops else ("fp16",)
    worth = (1 + MAJORITY_SHARE) * ceilings.flops.get(now, np.inf)
    return next((name for name in formats if ceilings.flops.get(name, 0.0) >= worth), None)
