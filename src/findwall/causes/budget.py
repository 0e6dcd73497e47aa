"""The budget: every nanosecond of the step given to exactly one cause.

This file alone cuts the step into atoms. A device row's own time is one atom; the idle time before it
is one atom a cause. Which cause owns which device row is the ranked list of claims below, and nothing else.
What runs beside something more important is not counted again: a slice of time goes to the kernel in it,
before the collective, the copy, the memset; equals share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from findwall.model.catalogue import FEWEST_REPEATS, MATRIX_CLASSES, NEAR
from findwall.model.causes import UNKNOWN, cause_index
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import EMPTY, F64, I64, union
from findwall.model.machine import Ceilings
from findwall.step.call_names import is_point_to_point
from findwall.step.links import BETWEEN_DEVICES, DOWNLOAD, UPLOAD
from findwall.step.step_facts import Links, Queue
from findwall.units import NS_PER_S
from findwall.work.fusion import fetches, fuse, kept_share, on_complex, touches_scores
from findwall.work.op_families.movement import message_bytes
from findwall.work.op_families.serving import SERVERS
from findwall.work.work_facts import (
    BOUNDS,
    START_NS,
    TOO_SMALL_NS,
    DeviceAtoms,
    Fused,
    KernelTable,
    ops_named,
)

# A kernel over a few numbers: 1.3 to 3 us on an H200.
LEAST_KERNEL_NS = 2_500.0
PASSES = ("unfused-pointwise", "gather-scatter", "unfused-optimizer")
# Kernels with which cuDNN and MIOpen change a tensor's layout around a convolution.
CONVERSION = re.compile(r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|batched_transpose", re.IGNORECASE)
# Kernels that a compiler writes anew as a part of the chain they stand in: what one writes the next reads.
CHAIN_CLASSES = ("reduce", "norm", "softmax")
# Of products: bound -> cause. Those near the roof are set apart once every row has its owner.
PRODUCTS = {"compute": "slow-kernels", "bandwidth": "memory-roof", "latency": "launch-bound"}
# A message this small costs its latency; one that takes longer than that waits for somebody.
SMALL_MESSAGE_BYTES = 1 << 20
LONGEST_LATENCY_NS = 1_000_000

FUSED = re.compile("fused", re.IGNORECASE)  # kernels of an optimizer that goes through memory once
_OF_SERVERS = re.compile(f"^(?:{'|'.join(SERVERS)})::")


def device_atoms(
    timeline: Timeline, links: Links, kernels: KernelTable, queue: Queue, ceilings: Ceilings
) -> DeviceAtoms:
    """Cut the steps' device time and give each piece to its cause."""
    index = np.flatnonzero(np.isin(kernels.row, queue.row))
    index = index[np.argsort(kernels.start[index], kind="stable")]
    start, end = kernels.start[index], kernels.end[index]
    own = share_out(start, end, _level(timeline, kernels, index))
    step = queue.step[queue.positions(kernels.row[index])]
    cause, floor = _settled(Rows(timeline, kernels, index, step, ceilings))
    _claim_messages(timeline, links, kernels, index, queue.steps, cause)
    share = own / np.maximum(kernels.duration[index], 1)
    return DeviceAtoms(index, own, cause, np.minimum(floor * share, own))


def _level(timeline: Timeline, kernels: KernelTable, index: I64) -> I64:
    kind = timeline.events.kind[kernels.row[index]]
    return np.select(
        [kernels.communication[index], kind == Kind.MEMCPY, kind == Kind.MEMSET], [1, 2, 3], 0
    ).astype(np.int64)


class Rows(msgspec.Struct, frozen=True, dict=True):
    """The steps' device rows in order, and what claims ask of them."""

    timeline: Timeline
    kernels: KernelTable
    index: I64  # into the KernelTable
    step: I64
    ceilings: Ceilings

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        return column[self.index]

    @cached_property
    def duration(self) -> I64:
        return self.of(self.kernels.duration)

    @cached_property
    def floor(self) -> F64:
        return self.of(self.kernels.floor)

    @cached_property
    def op(self) -> I64:
        return self.of(self.kernels.op)

    @cached_property
    def whole(self) -> Bool:
        """Passes over complex numbers: in no chain, as no compiler writes them."""
        return self.is_class("pointwise") & on_complex(self.timeline, self.op)

    @cached_property
    def kind(self) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self.timeline.events.kind[self.of(self.kernels.row)]
        return found

    @cached_property
    def chains(self) -> Fused:
        return fuse(self.timeline, self.kernels, self.index, self.step, float(self.ceilings.l2_bytes or 0))

    def is_class(self, *names: str) -> Bool:
        return self.of(self.kernels.is_class(*names))

    def bound(self, name: str) -> Bool:
        mask: Bool = self.of(self.kernels.bound) == BOUNDS.index(name)
        return mask

    def named(self, pattern: re.Pattern[str]) -> Bool:
        rows = self.kernels.row[self.index]
        return self.timeline.named(pattern, rows)[self.timeline.events.name[rows]]


Claim = tuple[Bool, str, F64 | float]  # rows, their cause, and what of each no fix of that cause can take


def _settled(rows: Rows) -> tuple[I64, F64]:
    """The owner of every row, and its floor: the first claim that wants a row has it."""
    cause = np.full(len(rows.index), cause_index(UNKNOWN), np.int64)
    floor = np.full(len(rows.index), np.nan)
    free = np.ones(len(rows.index), bool)
    for claims in CLAIMS:
        for where, name, least in claims(rows):
            mine = free & where
            cause[mine] = cause_index(name)
            floor[mine] = np.broadcast_to(least, floor.shape)[mine]
            free &= ~mine
    _one_kernel_a_chain(_is(cause, "unfused-pointwise") & rows.chains.chained, rows, floor)
    _at_a_roof_or_not(rows, cause, floor)
    return cause, floor


def _messages(rows: Rows) -> Iterator[Claim]:
    """Collectives, and copies by direction: to the device, to the host, between devices."""
    yield rows.of(rows.kernels.communication), "exposed-collective", 0.0
    names = rows.timeline.events.name[rows.of(rows.kernels.row)]
    copies = rows.kind == Kind.MEMCPY
    for direction, found in (
        (UPLOAD, "copy-exposed"),
        (DOWNLOAD, "host-sync"),
        (BETWEEN_DEVICES, "exposed-collective"),
    ):
        hits = rows.timeline.named(direction, rows.of(rows.kernels.row)[copies])[names]
        yield copies & hits, found, 0.0


def _needless(rows: Rows) -> Iterator[Claim]:
    """What runs twice, and products off the fast path; setting memory is part of no chain."""
    better = rows.of(rows.kernels.better_floor)
    yield rows.of(rows.kernels.recompute), "recompute", 0.0
    yield rows.kind == Kind.MEMSET, "memory-roof", rows.floor
    yield rows.of(rows.kernels.fast_path_off), "fast-path-off", better
    yield rows.of(rows.kernels.misaligned), "misaligned-shapes", better


def _attention(rows: Rows) -> Iterator[Claim]:
    """Kernels on the matrix of scores: a fused attention keeps their arithmetic and none of their bytes."""
    scores = touches_scores(rows.timeline, rows.kernels, rows.index)
    matmul = rows.is_class("matmul")
    at_roof = matmul & rows.bound("compute") & (rows.floor >= NEAR * rows.duration)
    # Cores may multiply 16-bit numbers slower than fp32.
    ceiling = max(rows.ceilings.flops.get(math, 0.0) for math in ("bf16", "fp16", "fp32"))
    arithmetic = rows.of(rows.kernels.flops) / ceiling * NS_PER_S if ceiling else rows.floor
    yield scores & ~at_roof, "unfused-attention", np.where(matmul, arithmetic, 0.0)


def _optimizer(rows: Rows) -> Iterator[Claim]:
    """A fused optimizer already moves only what it must; an unfused one could move a fused one's bytes."""
    mine = rows.is_class("optimizer")
    is_fused = mine & rows.named(FUSED)
    yield is_fused, "memory-roof", rows.floor
    rest = mine & ~is_fused
    kept = kept_share(rows.timeline, rows.of(rows.kernels.op)[rest])
    yield rest, "unfused-optimizer", rows.floor if kept is None else rows.floor * kept


def _servers(rows: Rows) -> Iterator[Claim]:
    """Ops of inference servers: fused by hand, so no chain of plain ops; a cache must be written."""
    theirs = ops_named(rows.timeline, rows.of(rows.kernels.op), _OF_SERVERS)
    mine = theirs & rows.is_class("pointwise", "copy", "gather")
    yield mine & rows.bound("latency"), "launch-bound", rows.floor
    yield mine & rows.of(rows.kernels.modelled), "memory-roof", rows.floor
    yield mine, UNKNOWN, rows.floor


def _fused(rows: Rows) -> Iterator[Claim]:
    """Floors of chains as one kernel; a norm, a softmax or a reduction inside one is part of it."""
    chains, ceilings = rows.chains, rows.ceilings
    moved = rows.of(rows.kernels.bytes)
    kept = np.maximum(moved - chains.saved, 0.0) + chains.again
    if ceilings.bandwidth:
        remaining = kept / ceilings.bandwidth * NS_PER_S
    else:  # a floor that needed no ceiling shrinks with the bytes; without one there is none
        remaining = rows.floor * np.divide(kept, moved, out=np.full(len(moved), np.nan), where=moved > 0)
    arithmetic = rows.of(rows.kernels.flops) / ceilings.flops.get("fp32", np.inf) * NS_PER_S
    fused = np.where(np.isnan(remaining), np.nan, np.fmax(remaining, np.nan_to_num(arithmetic)))
    least = np.where(chains.again > 0, np.fmin(fused, rows.duration), np.fmin(rows.floor, fused))
    # A cast folds into the op that reads it, or is left out: none of its bytes must be moved.
    casts = rows.of(rows.kernels.cast) & rows.is_class("copy")
    yield casts, "dtype-casts", np.where(np.isnan(least), np.nan, 0.0)
    # A copy computes nothing, at whatever speed: who reads it could read what it was made from. It keeps only
    # what the chain it stands in leaves to it: the first read, or the last write. A library turns tensors
    # around on its own account: in the layout it likes it does not do so at all.
    left = np.divide(np.minimum(kept, chains.saved), kept, out=np.zeros(len(kept)), where=kept > 0)
    turned = np.where(rows.named(CONVERSION), 0.0, least * left)
    yield rows.is_class("copy", "memcpy"), "layout-copies", turned
    chained = chains.chained & rows.is_class(*CHAIN_CLASSES)
    yield (rows.is_class("pointwise") & ~rows.whole) | chained, "unfused-pointwise", least


def _gathered(rows: Rows) -> Iterator[Claim]:
    """Rows that are fetched and added up in one kernel: those in between need not be written."""
    least = rows.floor.copy()
    if rows.ceilings.bandwidth:
        places, kept = fetches(rows.timeline, rows.kernels, rows.index, rows.step)
        least[places] = np.fmin(least[places], kept / rows.ceilings.bandwidth * NS_PER_S)
    yield rows.is_class("gather"), "gather-scatter", least


def _plain(rows: Rows) -> Iterator[Claim]:
    """Products by what bounds them; everything else that has a model moves only what it must."""
    for bound, found in PRODUCTS.items():
        yield rows.is_class(*MATRIX_CLASSES) & rows.bound(bound), found, rows.floor
    modelled = rows.is_class(*CHAIN_CLASSES) | (rows.is_class("other") & rows.of(rows.kernels.modelled))
    modelled |= rows.whole
    yield modelled, "memory-roof", rows.floor


# The strongest first: nothing that a claim has taken goes to a later one.
CLAIMS: tuple[Callable[[Rows], Iterator[Claim]], ...] = (
    _messages,
    _needless,
    _attention,
    _optimizer,
    _servers,
    _fused,
    _gathered,
    _plain,
)


def _is(cause: I64, *names: str) -> Bool:
    return np.isin(cause, [cause_index(name) for name in names])


def _one_kernel_a_chain(chained: Bool, rows: Rows, floor: F64) -> None:
    """However little a chain moves, what it becomes takes what a kernel takes: the longest keeps that."""
    at = np.flatnonzero(chained & ~np.isnan(floor))
    if len(at) == 0:
        return
    duration = rows.duration
    part = np.concatenate(([0], np.cumsum((np.diff(at) > 1) | (np.diff(rows.step[at]) != 0))))
    missing = np.maximum(LEAST_KERNEL_NS - np.bincount(part, floor[at]), 0.0)
    order = np.lexsort((duration[at], part))
    longest = at[order[np.searchsorted(part[order], np.arange(len(missing)), side="right") - 1]]
    floor[longest] = np.minimum(floor[longest] + missing, duration[longest])


def _at_a_roof_or_not(rows: Rows, cause: I64, floor: F64) -> None:
    """What runs near its floor is at a roof; what was put at one and is not near it is slow, too small, or of
    unknown work. The start-up and tail of a kernel come back by no better one: they stay in its floor."""
    near = floor >= NEAR * rows.duration
    cause[near & _is(cause, "slow-kernels")] = cause_index("at-the-roof")
    cause[near & _is(cause, *PASSES)] = cause_index("memory-roof")
    # A factorisation, say: no bytes hold it up.
    arithmetic = rows.is_class("other") & rows.bound("compute")
    cause[near & _is(cause, "memory-roof") & arithmetic] = cause_index("at-the-roof")
    far = _is(cause, "memory-roof") & ~near
    # Products are split into kernels some of which only prepare: those need not be. Else no work is no model.
    # How many numbers an optimizer updates is often counted only in part.
    blind = np.isnan(floor) | ((floor <= 0) & ~rows.is_class(*MATRIX_CLASSES)) | rows.is_class("optimizer")
    small = far & (rows.duration <= TOO_SMALL_NS) & ~np.isnan(floor)
    cause[far] = cause_index("slow-kernels")
    cause[far & blind] = cause_index(UNKNOWN)
    cause[small] = cause_index("launch-bound")
    floor[far] = np.minimum(floor + START_NS, rows.duration)[far]


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
    if small.sum() >= FEWEST_REPEATS * steps:
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


def claim_whole(atoms: DeviceAtoms, where: Bool, cause: str, left: F64 | None = None) -> DeviceAtoms:
    """Atoms that run for one cause alone: without it none of them does, or only the share that is `left`."""
    if not where.any():
        return atoms
    return replace(
        atoms,
        cause=np.where(where, cause_index(cause), atoms.cause),
        floor=np.where(where, 0.0 if left is None else atoms.own * left, atoms.floor),
    )


def claim_throttled(atoms: DeviceAtoms, kernels: KernelTable, lost: float) -> DeviceAtoms:
    """Arithmetic runs at the clock: what held-down clocks took of it."""
    arithmetic = kernels.bound[atoms.index] == BOUNDS.index("compute")
    return split_off(atoms, np.where(arithmetic, lost, 0.0), "throttled") if lost > 0 else atoms


# -- what runs beside something else -------------------------------------------------------------------


def share_out(start: I64, end: I64, level: I64) -> F64:
    """Each row's own time; the sum is the length of the union. Lower levels come first."""
    own = np.zeros(len(start))
    taken = EMPTY
    for rank in np.unique(level).tolist():
        rows = np.flatnonzero(level == rank)
        own[rows] = _among_equals(start[rows], end[rows], taken.start, taken.end)
        taken = taken | union(start[rows], end[rows])
    return own


def _among_equals(start: I64, end: I64, taken_start: I64, taken_end: I64) -> F64:
    """Integrate 1 / (rows running) over the time nobody more important has taken."""
    edges = np.concatenate([start, end, taken_start, taken_end])
    running = np.repeat([1, -1, 0, 0], [len(start), len(end), len(taken_start), len(taken_end)])
    above = np.repeat([0, 0, 1, -1], [len(start), len(end), len(taken_start), len(taken_end)])
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    depth = np.cumsum(running[order])[:-1]
    free = np.cumsum(above[order])[:-1] == 0
    rate = np.where(free & (depth > 0), 1.0 / np.maximum(depth, 1), 0.0)
    paid = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    found: F64 = paid[np.searchsorted(edges, end)] - paid[np.searchsorted(edges, start)]
    return found
