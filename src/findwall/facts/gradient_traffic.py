"""What a job reduces of its gradients: how many buckets of which size; what sharding would send instead."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np

from findwall.facts.collectives import collectives_of, forward_passes, reduced_too_early
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
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
        return max(math.ceil(self.gradients / (megabytes << 20)), 1)


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
