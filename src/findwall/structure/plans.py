"""Ops in which a library sets itself up for a shape it has not seen: plans, heuristics, autotuning.

cuDNN attention builds a plan for every new sequence length: tens of milliseconds in which the op is open,
calls nothing and launches nothing. cuBLAS asks its heuristics for every new shape of a matmul. That is not
Python with no op under it, and it comes again with every new shape.

Told by the op: it launches kernels, none of its own calls or ops runs in the stretch, a launch follows, and
it is the shape that makes the difference. Of the calls of one op with one shape only the first has the
stretch. Where every call has another shape there is nothing to hold it against but the op's other shapes:
each of them is then set up once. An op that takes the time again on a shape it knows works on the host; it
does not set up. Without shapes the few calls that have the stretch are told from the many that do not.

A question to the runtime (the last error, a kernel's attributes) launches nothing and waits for nothing: a
library asks hundreds of them while it sets itself up, and they do not end a stretch. A convolution with
another stride is another one, whatever its dims.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.model.events import Bool, Inputs, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.structure.links import NESTING_KINDS, Links

# Both chosen by hand. Between two calls of an op lie microseconds; a plan takes a millisecond or more.
PLAN_NS = 1_000_000
FEW_SHARE = 0.5  # of an op's calls: set-up is the exception
# Rows around other work, and libraries that wait for their peers: silence in them is not set-up.
WRAPS = re.compile(
    r"^autograd::engine|Backward\d*$|AccumulateGrad$|^Torch-Compiled Region"
    r"|CompiledFxGraph|^CompiledFunction|^CompiledAutograd|^ProfilerStep|^Optimizer\."
)
_NOT_A_LIBRARY_OP = re.compile(rf"{WRAPS.pattern}|^c10d::|^nccl|record_param_comms")
# Runtime calls that only ask.
ASKS = re.compile(
    r"^(cuda|hip)(Peek|Get|FuncGet|FuncSetAttr|DeviceGet|MemGetInfo|StreamIsCapturing|StreamGet|Occupancy|EventQuery"
    r"|EventElapsed|PointerGet|DriverGet|RuntimeGet)"
    r"|^cu(Get|FuncGet|FuncSetAttr|DeviceGet|CtxGet|MemGetInfo|StreamIsCapturing|StreamGet|Occupancy|EventQuery"
    r"|EventElapsed|PointerGet|ModuleGet|KernelGet)"
)


class Plans(msgspec.Struct, frozen=True):
    """Stretches of set-up in host order. All columns have one length."""

    row: I64  # the op
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.row)


_NONE = np.empty(0, np.int64)
NO_PLANS = Plans(_NONE, _NONE, _NONE)


def find_plans(timeline: Timeline, links: Links, mine: Bool) -> Plans:
    """Set-up inside the ops of the threads that launch device work."""
    last = _last_launches(timeline, links)
    ops = timeline.rows(Kind.OP)
    ops = ops[mine[ops] & (last[ops] >= 0)]
    if len(ops):
        ops = ops[~timeline.named(_NOT_A_LIBRARY_OP, ops)[timeline.events.name[ops]]]
    silent = _silences(timeline, links, ops, last)
    silent = _set_up(timeline, ops, silent)
    if len(silent) == 0:
        return NO_PLANS
    order = np.argsort(silent.start, kind="stable")
    return Plans(silent.row[order], silent.start[order], silent.end[order])


def _last_launches(timeline: Timeline, links: Links) -> I64:
    """For every host row the start of the last call in it that launches a kernel; -1 where there is none."""
    events = timeline.events
    kernels = timeline.rows(Kind.KERNEL)
    calls = np.unique(links.launch[kernels])
    calls = calls[calls >= 0]
    calls = calls[events.kind[calls] == Kind.RUNTIME]
    found = np.full(len(events), -1, np.int64)
    at, when = links.parent[calls], events.start[calls]
    while len(at):
        inside = at >= 0
        at, when = at[inside], when[inside]
        np.maximum.at(found, at, when)
        at = links.parent[at]
    return found


def _silences(timeline: Timeline, links: Links, ops: I64, last: I64) -> Plans:
    """Long stretches of ops before their last launch in which nothing that they call runs, save questions."""
    events = timeline.events
    long = ops[last[ops] - events.start[ops] >= PLAN_NS]
    if len(long) == 0:
        return NO_PLANS
    inner = timeline.rows(*NESTING_KINDS)
    inner = inner[np.isin(links.parent[inner], long)]
    inner = inner[~timeline.named(ASKS, inner)[events.name[inner]]] if len(inner) else inner
    inner = inner[np.argsort(links.parent[inner], kind="stable")]
    of = links.parent[inner]
    found: list[tuple[int, int, int]] = []
    for op in long.tolist():
        low, high = np.searchsorted(of, [op, op + 1])
        called = inner[low:high]
        if (events.kind[called] == Kind.PYTHON).any():
            continue  # written in Python: what it does between two calls is that
        silent = union(events.start[called], events.end[called]).gaps(int(events.start[op]), int(last[op]))
        wide = silent.end - silent.start >= PLAN_NS
        found += [
            (op, *one) for one in zip(silent.start[wide].tolist(), silent.end[wide].tolist(), strict=True)
        ]
    columns = np.array(found, np.int64).reshape(-1, 3)
    return Plans(columns[:, 0], columns[:, 1], columns[:, 2])


def _set_up(timeline: Timeline, ops: I64, silent: Plans) -> Plans:
    """Of the silences those that are set-up, judged op by op."""
    events = timeline.events
    kept = np.zeros(len(silent), bool)
    for name in np.unique(events.name[silent.row]).tolist():
        calls = ops[events.name[ops] == name]
        calls = calls[np.argsort(events.start[calls], kind="stable")]
        has = np.isin(calls, silent.row)
        kept |= np.isin(silent.row, calls[has & _sets_up(shapes(timeline, calls), has)])
    return Plans(silent.row[kept], silent.start[kept], silent.end[kept])


def _sets_up(shape: I64, has: Bool) -> Bool:
    """Of an op's calls in order, with shapes (-1 unknown) and whether they were silent: those that set up."""
    found = np.zeros(len(shape), bool)
    unknown = shape < 0
    found[unknown] = len(has) > 1 and float(has[unknown].mean()) < FEW_SHARE if unknown.any() else False
    known = np.unique(shape[~unknown])
    again = [has[np.flatnonzero(shape == one)[1:]] for one in known.tolist()]
    repeated = np.concatenate(again) if again else has[:0]
    if len(repeated) and float(repeated.mean()) >= FEW_SHARE:
        return found  # it takes the time on shapes that it knows
    for one, later in zip(known.tolist(), again, strict=True):
        found[np.flatnonzero(shape == one)[0]] = len(later) > 0 or len(known) > 1
    return found


def shapes(timeline: Timeline, rows: I64) -> I64:
    """A number for the dims of each op's arguments and its strides, paddings and the like, equal where they
    are; -1 where none were recorded."""
    ids, inverse = np.unique(timeline.events.inputs[rows], return_inverse=True)
    known: dict[str, int] = {}
    numbers = []
    for one in ids.tolist():
        inputs = timeline.details.inputs_of(one)
        numbers.append(known.setdefault(_shape(inputs), len(known)) if inputs and inputs.dims else -1)
    found: I64 = np.array(numbers, np.int64)[inverse.reshape(-1)] if len(rows) else rows
    return found


def _shape(inputs: Inputs) -> str:
    """Dims, and the lists that have at most one number for each of a tensor's: longer ones are data."""
    longest = max(map(len, inputs.dims))
    lists = [one for one in inputs.concrete if one.startswith("[") and one.count(",") < longest]
    return repr((inputs.dims, lists))
