"""Which device rows are communication, by what they do.

A library's name in the kernel is one witness among several: the collective's own metadata, the op or
annotation that launched the row, and the stream it runs on count too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.kernel_names import COLLECTIVE_KERNELS
from findwall.step.kernel_names.name_parts import telling_part
from findwall.step.links import DOWNLOAD, UPLOAD
from findwall.step.step_facts import Links

_OP = re.compile(
    r"^(?:c10d|c10d_functional|_c10d_functional|_c10d_functional_autograd|symm_mem|nccl|rccl|gloo|mori|deep_?ep|"
    r"nvshmem)[:_]|record_param_comms|^vllm::(?:all_reduce|all_gather|reduce_scatter|all_to_all)|"
    r"^(?:_C_custom_ar|sgl_kernel)::.*all_?reduce|^_C_custom_ar::|all_reduce|allreduce|all_gather|"
    r"reduce_scatter|all_to_all|alltoall",
    re.IGNORECASE,
)
# A collective itself, by the library that runs it: a range with such a word in its name may hold anything.
_COLLECTIVE = re.compile(
    r"^(?:c10d|c10d_functional|_c10d_functional|_c10d_functional_autograd|nccl|rccl|gloo|mpi|ucc):|"
    r"^record_param_comms$",
    re.IGNORECASE,
)
# Collectives that run on the host, on threads of their own: the device sees their copies, if anything.
HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):", re.IGNORECASE)


def is_communication(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """For each of these device rows, whether it is communication."""
    events = timeline.events
    by_kernel = _by_name(timeline, events.name[rows], COLLECTIVE_KERNELS.read)
    found: Bool = by_kernel & (events.kind[rows] == Kind.KERNEL)
    found |= _with_metadata(timeline, rows) | _launched_by_collective(timeline, links, rows)
    return found | is_transport(timeline, links, rows)


def is_transport(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Copies with which a collective takes device data through the host's memory, as gloo does."""
    found: Bool = timeline.events.kind[rows] == Kind.MEMCPY
    copies = np.flatnonzero(found)
    across = timeline.bears(UPLOAD, rows[copies]) | timeline.bears(DOWNLOAD, rows[copies])
    found[copies] = across & inside_collective(timeline, links, links.launch[rows[copies]])
    return found


def inside_collective(timeline: Timeline, links: Links, calls: I64) -> Bool:
    """Whether each host row lies in a collective, however deep; not so where there is no row (-1)."""
    events = timeline.events
    found = np.zeros(len(calls), bool)
    collective = timeline.named(_COLLECTIVE)
    if len(calls) == 0 or not collective.any():
        return found
    at = np.where(calls >= 0, links.parent[np.maximum(calls, 0)], -1)
    while len(left := np.flatnonzero(at >= 0)):
        around = at[left]
        above = links.parent[around]
        box = collective[events.name[around]] & np.isin(events.kind[around], (Kind.OP, Kind.ANNOTATION))
        # An asynchronous collective's range stays open while its thread goes on to other work: one that
        # outlasts what it began in, or ends before the call does, is no box around the call.
        box &= events.end[around] >= events.end[calls[left]]
        box &= (above < 0) | (events.end[around] <= events.end[np.maximum(above, 0)])
        found[left] = box
        at[left] = np.where(box, -1, above)
    return found


def _by_name(timeline: Timeline, names: np.ndarray, told: Callable[[str], object | None]) -> Bool:
    """Whether each of these names tells something, its parameter list left out."""
    distinct, inverse = np.unique(names, return_inverse=True)
    hits = [told(telling_part(timeline.names[int(name)])) is not None for name in distinct]
    return np.array(hits, bool)[inverse]


def _with_metadata(timeline: Timeline, rows: I64) -> Bool:
    distinct, inverse = np.unique(timeline.events.extra[rows], return_inverse=True)
    every = [timeline.details.extra_of(one) for one in distinct.tolist()]
    return np.array([one is not None and bool(one.collective) for one in every], bool)[inverse]


def _launched_by_collective(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """The innermost op around the launch, or an annotation closer than it, is a collective.

    An `aten` op inside a collective (a copy into its buffer) is that op's own work.
    """
    events = timeline.events
    found = np.zeros(len(rows), bool)
    with_op = links.op[rows] >= 0
    found[with_op] = _by_name(timeline, events.name[links.op[rows[with_op]]], _OP.search)
    around = np.where(links.launch[rows] >= 0, links.parent[np.maximum(links.launch[rows], 0)], -1)
    annotated = around >= 0
    annotated[annotated] = events.kind[around[annotated]] == Kind.ANNOTATION
    found[annotated] |= _by_name(timeline, events.name[around[annotated]], _OP.search)
    return found
