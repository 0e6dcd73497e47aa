"""What a rank sends: the buckets of its gradients, what sharding would send instead, and the least it takes.

From one rank alone what its collectives take beyond that is waiting or the link.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec
import numpy as np

from findwall.facts.collectives import collectives_of, forward_passes, reduced_too_early
from findwall.machine.link_table import bus_share, link_of
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Claim, Figures
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
from findwall.model.measured_run import Connection, NcclLog
from findwall.step.call_names import collective_name, kind_of
from findwall.units import MIB, NS_PER_S
from findwall.work.op_families.movement import message_bytes
from findwall.work.work_facts import WorkFacts

REDUCTION = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)
_ALL_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)
_COUNTED = re.compile(r"^(?:c10::)?(?:Bool|Int|Long|Short|Char|Byte|u?int\d*)$", re.IGNORECASE)


class Buckets(msgspec.Struct, frozen=True):
    """The all-reduces of DistributedDataParallel's gradients. All of a step, but for `median`."""

    count: float
    total: float  # bytes
    median: float  # bytes of one
    passes: int  # backward passes of an update that reduce
    ranks: int | None

    @property
    def gradients(self) -> float:
        """Bytes of all gradients: what one pass reduces."""
        return self.total / self.passes

    def made(self, megabytes: int) -> int:
        """How many of one pass there would be of so many MiB."""
        return max(math.ceil(self.gradients / (megabytes * MIB)), 1)


def reductions(facts: WorkFacts) -> I64:
    """Device rows that reduce: in the backward pass, where any lie there; else all of them."""
    inside, _ = collectives_of(facts, REDUCTION, backward=True)
    return inside if len(inside) else collectives_of(facts, REDUCTION)[0]


def buckets(facts: WorkFacts) -> Buckets | None:
    """None where DistributedDataParallel wraps no model, or the size of any of them is unknown."""
    if len(forward_passes(facts)) == 0:
        return None
    rows = np.array([row for row in _in_backward(facts) if not _counts(facts, row)], np.int64)
    sizes: F64 = message_bytes(facts.timeline, facts.links, rows)
    if len(rows) == 0 or np.isnan(sizes).any():
        return None
    steps, early = facts.steps.count, np.isin(rows, reduced_too_early(facts))
    passes = round(len(rows) / max(int((~early).sum()), 1))
    told = [facts.timeline.extra_of(row) for row in rows.tolist()]
    sizes_of = {one.group_size for one in told if one is not None and one.group_size}
    ranks = sizes_of.pop() if len(sizes_of) == 1 else facts.timeline.header.world_size
    return Buckets(len(rows) / steps, float(sizes.sum()) / steps, float(np.median(sizes)), passes, ranks)


def counted_parameters(facts: WorkFacts) -> tuple[I64, int | None]:
    """The reductions of integers in backward passes: with `find_unused_parameters` all ranks are asked which
    of so many parameters they used."""
    rows = [row for row in _in_backward(facts) if _counts(facts, row)]
    told = [facts.timeline.extra_of(row) for row in rows]
    counts = {one.in_elements for one in told if one is not None}
    return np.array(rows, np.int64), counts.pop() if len(counts) == 1 else None


def _in_backward(facts: WorkFacts) -> list[int]:
    rows, _ = collectives_of(facts, _ALL_REDUCE, backward=True)
    found: list[int] = rows[facts.timeline.events.kind[rows] == Kind.KERNEL].tolist()  # gloo's are copies
    return found


def _counts(facts: WorkFacts, row: int) -> bool:
    """Whether a reduction is of integers: no gradients."""
    extra = facts.timeline.extra_of(row)
    return extra is not None and extra.dtype is not None and bool(_COUNTED.match(extra.dtype))


def sent_by_stage(found: Buckets) -> dict[int, float]:
    """Bytes that a rank sends each step by ZeRO's stages, 0 as it is now. Gradients are as wide as weights.

    A reduction scatters sums and gathers them; the first two stages gather weights instead, once an update;
    the third gathers them for each forward and each backward pass.
    """
    if found.ranks is None or found.ranks < 2:
        return {}
    part, scattered = (found.ranks - 1) / found.ranks, found.total
    return {
        0: part * 2 * found.total,
        1: part * (scattered + found.gradients),
        2: part * (scattered + found.gradients),
        3: part * (scattered + 2 * found.total),
    }


class TransferFloor(msgspec.Struct, frozen=True):
    """Of the collectives whose size and group are recorded, a step; ns as traced."""

    calls: float
    took: float
    least: float
    rate: float  # bytes/s one way
    link: str  # "NVLink 4"; empty: as it was measured


def transfer_floor(facts: WorkFacts) -> TransferFloor | None:
    """None where no rate is known, or the sizes of what takes most of the time are not."""
    spec, measured = (
        link_of(facts.ceilings.device or facts.run.device_name or ""),
        facts.ceilings.link_bandwidth,
    )
    rate = measured or (spec.rate if spec is not None else None)
    rows = facts.kernels.row[np.unique(facts.atoms.index[facts.kernels.communication[facts.atoms.index]])]
    rows = rows[facts.timeline.events.kind[rows] == Kind.KERNEL]
    sent = np.array([_share(facts, row) for row in rows.tolist()], np.float64)
    sent = sent * message_bytes(facts.timeline, facts.links, rows)
    known = ~np.isnan(sent)
    events, steps = facts.timeline.events, facts.steps.count
    each = events.end[rows] - events.start[rows]
    if rate is None or not known.any() or each[known].sum() < MAJORITY_SHARE * each.sum():
        return None
    took = float(each[known].sum()) / steps
    least = float(sent[known].sum()) / rate * NS_PER_S / steps
    name = "" if measured or spec is None else spec.kind
    return TransferFloor(int(known.sum()) / steps, took, least, rate, name)


def _share(facts: WorkFacts, row: int) -> float:
    """Bytes that the rank sends for a byte of message, at least; NaN where unknown.

    A switch may add up on the way: then a byte to be reduced is sent once, unless the kernel is a ring's.
    """
    extra = facts.timeline.extra_of(row)
    ranks = extra.group_size if extra is not None else None
    found = bus_share(kind_of(collective_name(facts.timeline, facts.links, row)), ranks or 0)
    if found is None:
        return float("nan")
    return found if "RING" in facts.timeline.name_of(row) else min(found, 1.0)


# -- how ranks are connected, where a log of NCCL says so ---------------------------------------------------


def doubts_of(log: NcclLog | None) -> list[Claim]:
    """What connects ranks more slowly than it might."""
    if log is None:
        return []
    tests: tuple[tuple[str, Callable[[Connection], bool]], ...] = (
        ("nccl/sockets", lambda one: one.via == "NET/Socket" and one.across_nodes is not False),
        ("nccl/network-inside", lambda one: one.via.startswith("NET/") and one.across_nodes is False),
        ("nccl/shared-memory", lambda one: one.via == "SHM"),
        ("nccl/no-gpu-direct", lambda one: one.via == "NET/IB" and one.gpu_direct is False),
    )
    found = []
    for what, holds in tests:
        if pairs := sum(one.count for one in log.connections if holds(one)):
            figures: Figures = {"pairs": pairs, "of": sum(one.count for one in log.connections)}
            found.append(Claim(what, figures))
    return found + [Claim("nccl/switched-off", names={"setting": name}) for name in log.switched_off]
