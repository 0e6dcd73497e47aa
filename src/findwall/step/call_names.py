"""Ranges and calls that say what is done, by name: steps, optimizers, waits, allocation, compilation.

And whose code a frame of Python is.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.step_facts import OWNERS, Links, StepFacts

LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib/python\d[\d.]*|torch|torchvision|functorch"
    r"|findwall/(?:agent|apply))(?:/|$)|^<"  # findwall's, where it runs from a checkout
)
STDLIB = frozenset(sys.stdlib_module_names)
# A frame of Python as the profiler names it.
PROFILED_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")


def is_own(path: str) -> bool:
    """Whether it is the person's. The profiler cuts a library's path to what follows its folder."""
    first = path.split("/")[0].removesuffix(".py")
    return not (LIBRARY.search(path) or (not path.startswith("/") and first in STDLIB))


PROFILER_STEP = re.compile(r"^ProfilerStep[#*]?\s*(\d+)?")


OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#(\w*)")


# All that an optimizer is called for.
OPTIMIZER_CALL = re.compile(r"^Optimizer\.(step|zero_grad)#|^## optimizer", re.IGNORECASE)


# The end of a parameter's gradient: which of them come before an optimizer's call tells what it trains.
GRADIENT = re.compile(r"^torch::autograd::AccumulateGrad$")


def optimizers(timeline: Timeline) -> list[str]:
    """Class names of the optimizers that step in this trace, in order."""
    found = (OPTIMIZER_STEP.match(name) for name in timeline.names)
    return sorted({match[1] for match in found if match and match[1]})


ALLOCATOR = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostFree|FreeHost|MallocHost|MallocManaged|MallocAsync|FreeAsync)"
    r"|^cuMem(Alloc|Free|Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree)",
    re.IGNORECASE,
)


FREE = re.compile(r"^(cuda|hip)(Free|FreeHost|HostFree)$|^cuMem(Free|Unmap|Release)", re.IGNORECASE)


COMPILE = re.compile(
    r"compile_inner|entire_frame_compile|backend_compile|compile_fx|_compile\.compile|inductor_compile"
    r"|create_aot_dispatcher|aot_(module|function|dispatch).*compile|async_compile|GraphLowering|Scheduler\.(codegen|__init__)"
    r"|PyCodeCache\.load|^(cu|hip)(ModuleLoad|LinkComplete|LibraryLoad)|triton.*compile"
    r"|dynamo_timed|Lazy Function Loading",
    re.IGNORECASE,
)


SYNCHRONIZE = re.compile(r"^(cuda|cu|hip)(Stream|Device|Event|Ctx)Synchronize", re.IGNORECASE)


_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|send|recv", re.IGNORECASE
)


# A kernel called SendRecv proves nothing: an all-to-all uses the same one.
_POINT_TO_POINT = re.compile(
    r"^(?:c10d|nccl|rccl|gloo|dist)[:.]+i?(?:send|recv)|^i?(?:send|recv)_?$", re.IGNORECASE
)


def collective_name(timeline: Timeline, links: Links, row: int) -> str:
    """What a collective is, said the same on every rank: the kernel's name may differ in algorithm."""
    extra = timeline.extra_of(row)
    if extra is not None and extra.collective:
        return extra.collective
    launch = int(links.launch[row])
    around = (timeline.name_of(one) for one in (links.ancestors(launch) if launch >= 0 else ()))
    telling = next((name for name in around if _COLLECTIVE.search(name)), None)
    return telling or timeline.name_of(row).split("(")[0]


# Names of one collective by different callers: "nccl:_all_gather_base", "_allgather_base", "gloo:all_reduce".
_CALLER = re.compile(
    r"^(?:nccl|gloo|mpi|ucc|c10d|rccl|symm_mem)[:.]+|^(?:multimem|one_shot|two_shot)_|^_+"
    r"|_base$|_coalesced$|_out$|_copy$|_$",
    re.IGNORECASE,
)
_SPELT = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "isend": "send",
    "irecv": "recv",
}


def kind_of(name: str) -> str:
    """A collective's kind, however its caller spells it."""
    before = ""
    while name != before:
        before, name = name, _CALLER.sub("", name)
    spelt = name.lower()
    return _SPELT.get(spelt.replace("_", ""), spelt)


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


# -- calls with which the host waits for the device, and the ops that they lie in ----------------------------


def sync_rows(facts: StepFacts) -> I64:
    """Calls in the window with which the host waits for the device, copies to it left out."""
    return in_window(facts, blocking_rows(facts, "host-sync"))


def outermost(facts: StepFacts, rows: I64) -> I64:
    """For each call the op it lies in that no other op contains; the call itself where there is none."""
    found: I64 = rows.copy()
    at = rows.copy()
    while (at >= 0).any():
        above = np.maximum(at, 0)
        is_op = (at >= 0) & (facts.timeline.events.kind[above] == Kind.OP)
        found[is_op] = at[is_op]
        at = np.where(at >= 0, facts.links.parent[above], -1)
    return found


def in_window(facts: StepFacts, rows: I64) -> I64:
    """Host rows that begin in the host's time of the counted steps."""
    start = facts.timeline.events.start[rows]
    return rows[(start >= facts.queue.opens) & (start < facts.queue.closes)]


def blocking_rows(facts: StepFacts, cause: str) -> I64:
    """Calls with which the host waits for the device, of one of the causes that own such calls."""
    blocking = facts.host.blocking
    rows: I64 = blocking.row[blocking.owner == OWNERS.index(cause)]
    return rows
