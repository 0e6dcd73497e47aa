"""The budget: every nanosecond of the step given to exactly one cause.

This file alone cuts the step into atoms. A device row's own time is one atom; the idle time before it
is one atom a cause. Which cause takes which atom is the ranked table below, and nothing else.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.attribute.fetching import fetches
from findwall.attribute.fusion import fuse
from findwall.attribute.kernels import BOUNDS, KernelTable
from findwall.attribute.messages import is_point_to_point, message_bytes
from findwall.attribute.scores import touches_scores
from findwall.attribute.slices import share_out
from findwall.attribute.updates import kept_share
from findwall.attribute.workmodel.floors import START_NS, TOO_SMALL_NS
from findwall.attribute.workmodel.serving import SERVERS
from findwall.model.catalogue import KERNEL_CLASSES, MATRIX_CLASSES
from findwall.model.causes import CAUSES as CAUSES  # said twice: dilation.py takes both from here
from findwall.model.causes import UNKNOWN as UNKNOWN
from findwall.model.causes import cause_index
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.model.machine import Ceilings
from findwall.structure.copies import BETWEEN_DEVICES, DOWNLOAD, UPLOAD
from findwall.structure.links import Links
from findwall.structure.queue import Queue
from findwall.units import NS_PER_S

# Chosen by hand, not calibrated, as are the sizes and counts of messages below.
LEAST_KERNEL_NS = 2_500.0  # a kernel over a few numbers: 1.3 to 3 us on an H200
FAR_BELOW_SHARE = 0.5  # of the memory's ceiling: a product this slow is bound by neither
# Of its ceiling: a kernel of any class that reaches less is at no roof, but slow, or too small.
NEAR_ROOF_SHARE = 0.4
# Of the time of a pass over memory: where its floor, with all fused that can be, is this much, none is left.
AT_FLOOR_SHARE = 0.9
PASSES = ("unfused-pointwise", "gather-scatter", "unfused-optimizer")
ROOF_SHARE = 0.75  # of the achievable ceiling: from here on a kernel is at the roof
# Kernels with which cuDNN and MIOpen change a tensor's layout around a convolution.
CONVERSION = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|batched_transpose", re.IGNORECASE)
# Kernels that a compiler writes anew as a part of the chain they stand in: what one writes the next reads.
CHAIN_CLASSES = ("reduce", "norm", "softmax")
# A message this small costs its latency; one that takes longer than that waits for somebody.
SMALL_MESSAGE_BYTES = 1 << 20
LONGEST_LATENCY_NS = 1_000_000
MANY_MESSAGES_PER_STEP = 10  # fewer are no stream of small ones

# Class x regime -> cause, for kernels that no stronger claim has taken. "*" stands for any regime.
CLASS_CAUSE: dict[tuple[str, str], str] = {
    ("matmul", "compute"): "slow-kernels",
    ("conv", "compute"): "slow-kernels",
    ("attention", "compute"): "slow-kernels",
    ("matmul", "bandwidth"): "memory-roof",
    ("conv", "bandwidth"): "memory-roof",
    ("attention", "bandwidth"): "memory-roof",
    ("matmul", "latency"): "launch-bound",
    ("conv", "latency"): "launch-bound",
    ("attention", "latency"): "launch-bound",
    ("matmul", "unknown"): UNKNOWN,
    ("conv", "unknown"): UNKNOWN,
    ("attention", "unknown"): UNKNOWN,
    ("pointwise", "*"): "unfused-pointwise",
    ("copy", "*"): "layout-copies",
    ("gather", "*"): "gather-scatter",
    ("optimizer", "*"): "unfused-optimizer",
    ("norm", "*"): "memory-roof",
    ("reduce", "*"): "memory-roof",
    ("softmax", "*"): "memory-roof",
    ("memcpy", "*"): "layout-copies",
    ("collective", "*"): "exposed-collective",
    ("other", "*"): UNKNOWN,
}


_SERVERS = tuple(f"{namespace}::" for namespace in SERVERS)


class DeviceAtoms(msgspec.Struct, frozen=True):
    """Device rows of the window: own time, cause, and what of it must remain."""

    index: I64  # into the KernelTable
    own: F64  # ns over the whole window
    cause: I64  # -> CAUSES
    floor: F64  # ns of `own` that no fix of this cause can take; NaN unknown

    def of(self, cause: str) -> I64:
        """Positions of the atoms of one cause."""
        found: I64 = np.flatnonzero(self.cause == cause_index(cause))
        return found


def device_atoms(
    timeline: Timeline, links: Links, kernels: KernelTable, queue: Queue, ceilings: Ceilings
) -> DeviceAtoms:
    """Cut the steps' device time and give each piece to its cause."""
    index = np.flatnonzero(np.isin(kernels.row, queue.row))
    index = index[np.argsort(kernels.start[index], kind="stable")]
    start, end = kernels.start[index], kernels.end[index]
    own = share_out(start, end, _level(timeline, kernels, index))
    step = queue.step[queue.positions(kernels.row[index])]
    cause, floor = _claims(timeline, kernels, index, step, ceilings)
    _claim_messages(timeline, links, kernels, index, queue.steps, cause)
    share = own / np.maximum(kernels.duration[index], 1)
    return DeviceAtoms(index, own, cause, np.minimum(floor * share, own))


def _level(timeline: Timeline, kernels: KernelTable, index: I64) -> I64:
    kind = timeline.events.kind[kernels.row[index]]
    level: I64 = np.select(
        [kernels.communication[index], kind == Kind.MEMCPY, kind == Kind.MEMSET], [1, 2, 3], 0
    ).astype(np.int64)
    return level


def _claims(
    timeline: Timeline, kernels: KernelTable, index: I64, step: I64, ceilings: Ceilings
) -> tuple[I64, F64]:
    """The ranked table: weaker claims first, stronger ones overwrite them."""
    cause = _by_class(kernels, index)
    floor = kernels.floor[index].copy()
    roof = _is(cause, "slow-kernels") & (floor >= ROOF_SHARE * kernels.duration[index])
    _claim(cause, roof, "at-the-roof")
    unmodelled = np.isnan(kernels.bytes[index]) & _is(cause, "memory-roof")
    _claim(cause, unmodelled, UNKNOWN)
    # A product that neither does arithmetic nor moves bytes at any speed is a slow kernel, not at a roof.
    far = _class_is(kernels, index, *MATRIX_CLASSES) & _is(cause, "memory-roof")
    far &= (floor > 0) & (floor < FAR_BELOW_SHARE * kernels.duration[index])
    _claim(cause, far, "slow-kernels")
    _claim(cause, kernels.cast[index] & _class_is(kernels, index, "copy"), "dtype-casts")
    _claim_servers(timeline, kernels, index, cause)
    _claim_fusion(timeline, kernels, index, step, ceilings, cause, floor)
    _claim_fetching(timeline, kernels, index, step, ceilings, cause, floor)
    _claim_optimizer(timeline, kernels, index, cause, floor)
    _claim_attention(timeline, kernels, index, ceilings, cause, floor)
    for flag, name in (
        (kernels.misaligned[index], "misaligned-shapes"),
        (kernels.fast_path_off[index], "fast-path-off"),
    ):
        _claim(cause, flag, name)
        floor[flag] = kernels.better_floor[index][flag]
    _claim(cause, kernels.recompute[index], "recompute")
    floor[kernels.recompute[index]] = 0.0
    _claim_copies(timeline, kernels, index, cause, floor)
    _claim(cause, kernels.communication[index], "exposed-collective")
    floor[kernels.communication[index]] = 0.0
    _claim_at_their_floor(kernels, index, cause, floor)
    _claim_far_from_roof(kernels, index, cause, floor)
    return cause, floor


def _is(cause: I64, name: str) -> Bool:
    mask: Bool = cause == cause_index(name)
    return mask


def _claim(cause: I64, where: Bool, name: str) -> None:
    cause[where] = cause_index(name)


def _named(timeline: Timeline, kernels: KernelTable, index: I64, pattern: re.Pattern[str]) -> Bool:
    names = timeline.events.name[kernels.row[index]]
    distinct, inverse = np.unique(names, return_inverse=True)
    hits = np.array([bool(pattern.search(timeline.names[int(name)])) for name in distinct], bool)
    mask: Bool = hits[inverse] if len(hits) else np.zeros(0, bool)
    return mask


def _class_is(kernels: KernelTable, index: I64, *names: str) -> Bool:
    wanted = [KERNEL_CLASSES.index(name) for name in names]
    mask: Bool = np.isin(kernels.class_index[index], wanted)
    return mask


def _by_class(kernels: KernelTable, index: I64) -> I64:
    cause = np.full(len(index), cause_index(UNKNOWN), np.int64)
    for (name, bound), found in CLASS_CAUSE.items():
        where = _class_is(kernels, index, name)
        if bound != "*":
            where &= kernels.bound[index] == BOUNDS.index(bound)
        _claim(cause, where, found)
    other = _class_is(kernels, index, "other") & kernels.modelled[index]
    _claim(cause, other, "memory-roof")
    return cause


def _claim_servers(timeline: Timeline, kernels: KernelTable, index: I64, cause: I64) -> None:
    """Ops of inference servers: fused by hand, so no chain of plain ops; a cache must be written."""
    theirs = np.array([name.startswith(_SERVERS) for name in timeline.names], bool)
    op = kernels.op[index]
    mine = (op >= 0) & theirs[timeline.events.name[np.maximum(op, 0)]] if len(theirs) else op < -1
    mine &= _class_is(kernels, index, "pointwise", "copy", "gather")
    _claim(cause, mine & kernels.modelled[index], "memory-roof")
    _claim(cause, mine & ~kernels.modelled[index], UNKNOWN)
    _claim(cause, mine & (kernels.bound[index] == BOUNDS.index("latency")), "launch-bound")


def _claim_fusion(
    timeline: Timeline,
    kernels: KernelTable,
    index: I64,
    step: I64,
    ceilings: Ceilings,
    cause: I64,
    floor: F64,
) -> None:
    """Floors of chains as one kernel; a norm, a softmax or a reduction inside one is part of it."""
    chains = fuse(timeline, kernels, index, step, float(ceilings.l2_bytes or 0))
    _claim(cause, chains.chained & _class_is(kernels, index, *CHAIN_CLASSES), "unfused-pointwise")
    movable = _is(cause, "unfused-pointwise") | _is(cause, "dtype-casts") | _is(cause, "layout-copies")
    moved = kernels.bytes[index]
    kept = np.maximum(moved - chains.saved, 0.0) + chains.again
    if ceilings.bandwidth:
        remaining = kept / ceilings.bandwidth * NS_PER_S
    else:  # a floor that needed no ceiling shrinks with the bytes; without one there is none
        remaining = floor * np.divide(kept, moved, out=np.full(len(moved), np.nan), where=moved > 0)
    arithmetic = kernels.flops[index] / ceilings.flops.get("fp32", np.inf) * NS_PER_S
    fused = np.where(np.isnan(remaining), np.nan, np.fmax(remaining, np.nan_to_num(arithmetic)))
    least = np.where(chains.again > 0, np.fmin(fused, kernels.duration[index]), np.fmin(floor, fused))
    floor[movable] = least[movable]
    # A copy computes nothing, at whatever speed: who reads it could read what it was made from. It keeps only
    # what the chain it stands in leaves to it: the first read, or the last write.
    left = np.divide(np.minimum(kept, chains.saved), kept, out=np.zeros(len(kept)), where=kept > 0)
    floor[_is(cause, "layout-copies")] *= left[_is(cause, "layout-copies")]
    _one_kernel_a_chain(movable & chains.chained, step, kernels.duration[index], floor)
    # A library turns tensors around on its own account: in the layout it likes it does not do so at all.
    floor[_is(cause, "layout-copies") & _named(timeline, kernels, index, CONVERSION)] = 0.0
    # A cast folds into the op that reads it, or is left out: none of its bytes must be moved.
    floor[_is(cause, "dtype-casts") & ~np.isnan(floor)] = 0.0


def _claim_fetching(
    timeline: Timeline,
    kernels: KernelTable,
    index: I64,
    step: I64,
    ceilings: Ceilings,
    cause: I64,
    floor: F64,
) -> None:
    """Floors of rows that are fetched and added up in one kernel: those in between need not be written."""
    if not ceilings.bandwidth:
        return
    places, kept = fetches(timeline, kernels, index, step)
    mine = _is(cause, "gather-scatter")[places]
    places, least = places[mine], kept[mine] / ceilings.bandwidth * NS_PER_S
    floor[places] = np.fmin(floor[places], least)


def _one_kernel_a_chain(chained: Bool, step: I64, duration: I64, floor: F64) -> None:
    """However little a chain moves, what it becomes takes what a kernel takes: the longest keeps that."""
    at = np.flatnonzero(chained & ~np.isnan(floor))
    if len(at) == 0:
        return
    part = np.concatenate(([0], np.cumsum((np.diff(at) > 1) | (np.diff(step[at]) != 0))))
    missing = np.maximum(LEAST_KERNEL_NS - np.bincount(part, floor[at]), 0.0)
    order = np.lexsort((duration[at], part))
    longest = at[order[np.searchsorted(part[order], np.arange(len(missing)), side="right") - 1]]
    floor[longest] = np.minimum(floor[longest] + missing, duration[longest])


def _claim_optimizer(timeline: Timeline, kernels: KernelTable, index: I64, cause: I64, floor: F64) -> None:
    """A fused optimizer already moves only what it must; an unfused one could move a fused one's bytes."""
    mine = _class_is(kernels, index, "optimizer")
    fused = np.array(["fused" in name.lower() for name in timeline.names], bool)
    is_fused = mine & fused[timeline.events.name[kernels.row[index]]]
    _claim(cause, is_fused, "memory-roof")
    rest = mine & ~is_fused
    total = float(np.nansum(kernels.floor[index][rest]))
    kept = kept_share(timeline, kernels.op[index[rest]])
    if total > 0 and kept is not None:
        floor[rest] = kernels.floor[index][rest] * kept


def _claim_attention(
    timeline: Timeline, kernels: KernelTable, index: I64, ceilings: Ceilings, cause: I64, floor: F64
) -> None:
    """Kernels on the matrix of scores: a fused attention keeps their arithmetic and none of their bytes."""
    scores = touches_scores(timeline, kernels, index)
    matmul = _class_is(kernels, index, "matmul")
    at_roof = matmul & _is(cause, "at-the-roof")
    scores &= ~at_roof
    _claim(cause, scores, "unfused-attention")
    floor[scores & ~matmul] = 0.0
    # Cores may multiply 16-bit numbers slower than fp32.
    ceiling = max(ceilings.flops.get(math, 0.0) for math in ("bf16", "fp16", "fp32"))
    if ceiling:
        arithmetic = kernels.flops[index] / ceiling * NS_PER_S
        floor[scores & matmul] = arithmetic[scores & matmul]


def _claim_copies(timeline: Timeline, kernels: KernelTable, index: I64, cause: I64, floor: F64) -> None:
    """Copies by direction: to the device, to the host, and between devices are three different walls."""
    kind = timeline.events.kind[kernels.row[index]]
    names = timeline.events.name[kernels.row[index]]
    for direction, found in (
        (UPLOAD, "copy-exposed"),
        (DOWNLOAD, "host-sync"),
        (BETWEEN_DEVICES, "exposed-collective"),
    ):
        where = kind == Kind.MEMCPY
        where &= timeline.named(direction, kernels.row[index][where])[names]
        _claim(cause, where, found)
        floor[where] = 0.0
    # Setting memory is part of no chain; it moves what it must. For work that is repeated it need not be.
    _claim(cause, (kind == Kind.MEMSET) & ~kernels.recompute[index], "memory-roof")


def _claim_at_their_floor(kernels: KernelTable, index: I64, cause: I64, floor: F64) -> None:
    """Passes over memory with nothing to fuse, at the memory's speed: they move only what they must."""
    passes = np.logical_or.reduce([_is(cause, name) for name in PASSES])
    _claim(cause, passes & (floor >= AT_FLOOR_SHARE * kernels.duration[index]), "memory-roof")


def _claim_far_from_roof(kernels: KernelTable, index: I64, cause: I64, floor: F64) -> None:
    """What the classes put at the memory's roof and is not near it: slow, too small, or of unknown work.

    The start-up and tail of a kernel come back by no better one, so they stay in its floor.
    """
    duration = kernels.duration[index]
    far = _is(cause, "memory-roof") & ~(floor >= NEAR_ROOF_SHARE * duration)
    small = far & (duration <= TOO_SMALL_NS)
    # Products are split into kernels some of which only prepare: those need not be. Else no work is no model.
    # How many numbers an optimizer updates is often counted only in part.
    blind = np.isnan(floor) | ((floor <= 0) & ~_class_is(kernels, index, *MATRIX_CLASSES))
    blind |= _class_is(kernels, index, "optimizer")
    _claim(cause, far, "slow-kernels")
    _claim(cause, far & blind, UNKNOWN)
    _claim(cause, small & ~np.isnan(floor), "launch-bound")
    floor[far] = np.minimum(floor + START_NS, duration)[far]


def _claim_messages(
    timeline: Timeline, links: Links, kernels: KernelTable, index: I64, steps: int, cause: I64
) -> None:
    """Of the collectives: those between two ranks, and those whose cost is latency."""
    talk = np.flatnonzero(_is(cause, "exposed-collective") & kernels.communication[index])
    if len(talk) == 0:
        return
    rows = kernels.row[index[talk]]
    cause[talk[is_point_to_point(timeline, links, rows)]] = cause_index("pipeline-bubble")
    small = message_bytes(timeline, links, rows) < SMALL_MESSAGE_BYTES
    small &= (kernels.duration[index[talk]] <= LONGEST_LATENCY_NS) & _is(cause[talk], "exposed-collective")
    if small.sum() >= MANY_MESSAGES_PER_STEP * steps:
        cause[talk[small]] = cause_index("small-collectives")


def split_off(atoms: DeviceAtoms, share: F64, cause: str) -> DeviceAtoms:
    """Give a share of each atom's time to a cause that could give all of it back; the rest stays."""
    taken = np.flatnonzero(share > 0)
    rest = atoms.own * (1.0 - share)
    floor = np.fmin(atoms.floor, rest)
    floor[np.isnan(atoms.floor)] = np.nan
    return DeviceAtoms(
        index=np.concatenate([atoms.index, atoms.index[taken]]),
        own=np.concatenate([rest, (atoms.own * share)[taken]]),
        cause=np.concatenate([atoms.cause, np.full(len(taken), cause_index(cause), np.int64)]),
        floor=np.concatenate([floor, np.zeros(len(taken))]),
    )


def claim_whole(atoms: DeviceAtoms, where: Bool, cause: str) -> DeviceAtoms:
    """Atoms that run for one cause alone: without it none of them does."""
    if not where.any():
        return atoms
    return replace(
        atoms,
        cause=np.where(where, cause_index(cause), atoms.cause),
        floor=np.where(where, 0.0, atoms.floor),
    )


def claim_throttled(atoms: DeviceAtoms, kernels: KernelTable, lost: float) -> DeviceAtoms:
    """Arithmetic runs at the clock: what held-down clocks took of it."""
    arithmetic = kernels.bound[atoms.index] == BOUNDS.index("compute")
    return split_off(atoms, np.where(arithmetic, lost, 0.0), "throttled") if lost > 0 else atoms
