"""What collectives carry: the bytes of each message, and whether it goes from one rank to one other."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.workmodel.arguments import Arguments, item_size
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.structure.links import Links

_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|send|recv", re.IGNORECASE
)
# A kernel called SendRecv proves nothing: an all-to-all uses the same one.
_POINT_TO_POINT = re.compile(
    r"^(?:c10d|nccl|rccl|gloo|dist)[:.]+i?(?:send|recv)|^i?(?:send|recv)_?$", re.IGNORECASE
)


def message_bytes(timeline: Timeline, links: Links, rows: I64) -> F64:
    """Bytes of each device row's message, the larger of what goes in and comes out; NaN unknown."""
    return np.array([_bytes(timeline, links, row) for row in rows.tolist()], np.float64)


def _bytes(timeline: Timeline, links: Links, row: int) -> float:
    op = int(links.op[row])
    for holder in (row, op):
        extra = timeline.extra_of(holder) if holder >= 0 else None
        if extra is not None and extra.dtype:
            size = item_size(extra.dtype)
            elements = max(extra.in_elements or 0, extra.out_elements or 0)
            if size and elements:
                return float(size * elements)
    tensors = Arguments(timeline.inputs_of(op)).tensors()
    return max((float(tensor.elements * tensor.size) for tensor in tensors), default=np.nan)


def collective_name(timeline: Timeline, links: Links, row: int) -> str:
    """What a collective is, said the same on every rank: the kernel's name may differ in algorithm."""
    extra = timeline.extra_of(row)
    if extra is not None and extra.collective:
        return extra.collective
    launch = int(links.launch[row])
    around = (timeline.name_of(one) for one in (links.ancestors(launch) if launch >= 0 else ()))
    telling = next((name for name in around if _COLLECTIVE.search(name)), None)
    return telling or timeline.name_of(row).split("(")[0]


def is_point_to_point(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Whether each device row is a send or a receive, by its metadata or what stands around its launch."""
    return np.array([_point_to_point(timeline, links, row) for row in rows.tolist()], bool)


def _point_to_point(timeline: Timeline, links: Links, row: int) -> bool:
    extra = timeline.extra_of(row)
    if extra is not None and extra.collective:
        return bool(_POINT_TO_POINT.match(extra.collective))
    launch = int(links.launch[row])
    around = links.ancestors(launch) if launch >= 0 else []
    named = [one for one in around if timeline.events.kind[one] in (Kind.OP, Kind.ANNOTATION)]
    return any(_POINT_TO_POINT.match(timeline.name_of(one)) for one in named)
