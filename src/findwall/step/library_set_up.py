"""Ops in which a library sets itself up: for a shape it has not seen, by trying kernels out, at first calls.

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

import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import DEVICE_KINDS, Bool, Inputs, Kind, Timeline
from findwall.model.intervals import I64, union
from findwall.step.links import NESTING_KINDS
from findwall.step.step_facts import Links, Plans

# Both chosen by hand. Between two calls of an op lie microseconds; a plan takes a millisecond or more.
PLAN_NS = 1_000_000
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


Silence = tuple[int, int, int]  # an op, and from when to when


def find_plans(timeline: Timeline, links: Links, mine: Bool) -> Plans:
    """Set-up inside the ops of the threads that launch device work."""
    last = _last_launches(timeline, links)
    ops = timeline.rows(Kind.OP)
    ops = ops[mine[ops] & (last[ops] >= 0)]
    ops = ops[~timeline.bears(_NOT_A_LIBRARY_OP, ops)]
    silent = _set_up(timeline, ops, _silences(timeline, links, ops, last))
    order = np.argsort(silent.start, kind="stable")
    return Plans(silent.row[order], silent.start[order], silent.end[order])


def _last_launches(timeline: Timeline, links: Links) -> I64:
    """For every host row the start of the last call in it that launches a kernel; -1 where there is none."""
    events = timeline.events
    calls = np.unique(links.launch[timeline.rows(Kind.KERNEL)])
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
    """The silences of these ops; `last`: when each host row launched last."""
    long = ops[last[ops] - timeline.events.start[ops] >= PLAN_NS]
    inner = timeline.rows(*NESTING_KINDS)
    inner = inner[np.isin(links.parent[inner], long)]
    inner = inner[np.argsort(links.parent[inner], kind="stable")]
    of = links.parent[inner]
    found: list[Silence] = []
    for op in long.tolist():
        low, high = np.searchsorted(of, [op, op + 1])
        found += _silent(timeline, op, inner[low:high], int(last[op]))
    return Plans(*np.array(found, np.int64).reshape(-1, 3).T)


def _silent(timeline: Timeline, op: int, called: I64, until: int) -> list[Silence]:
    """Long stretches of an op before its last launch in which nothing that it calls runs, save questions."""
    events = timeline.events
    if (events.kind[called] == Kind.PYTHON).any():
        return []  # written in Python: what it does between two calls is that
    called = called[~timeline.bears(ASKS, called)]
    gaps = union(events.start[called], events.end[called]).gaps(int(events.start[op]), until)
    wide = gaps.end - gaps.start >= PLAN_NS
    return [(op, *one) for one in zip(gaps.start[wide].tolist(), gaps.end[wide].tolist(), strict=True)]


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
    found[unknown] = len(has) > 1 and float(has[unknown].mean()) < MAJORITY_SHARE if unknown.any() else False
    known = np.unique(shape[~unknown])
    again = [has[np.flatnonzero(shape == one)[1:]] for one in known.tolist()]
    repeated = np.concatenate(again) if again else has[:0]
    if len(repeated) and float(repeated.mean()) >= MAJORITY_SHARE:
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
    return np.array(numbers, np.int64)[inverse.reshape(-1)] if len(rows) else rows


def _shape(inputs: Inputs) -> str:
    """Dims, and the lists that have at most one number for each of a tensor's: longer ones are data."""
    longest = max(map(len, inputs.dims))
    lists = [one for one in inputs.concrete if one.startswith("[") and one.count(",") < longest]
    return repr((inputs.dims, lists))


# -- ops that try kernels out: cuDNN's benchmark, a GEMM's autotuning -------------------------------------
#
# With `torch.backends.cudnn.benchmark` a convolution runs every kernel it has on the first call with a
# shape, and waits for each. Such a call launches many times the kernels of the op's other calls, by many
# names. It is told by that and by the shape: on a later call with the same one it does not try again. All
# of the call is set-up, on the host and on the device.
#
# Where every call has a shape of its own there is no usual call to hold it against. A call then tells it
# alone: it waits for events, once for each kernel tried, which is how kernels are timed. An op that only
# works never asks how long it took.


# All chosen by hand.
FEWEST_TRIED = 8  # kernels in one call
MANY_TIMES = 4  # times the kernels of the op's usual call
FEWEST_NAMES = 4  # kernels of different names
FEWEST_TIMED = 3  # waits for an event in one call
_WAITS_FOR_EVENT = re.compile(r"^(cuda|cu|hip)EventSynchronize")


def find_trials(timeline: Timeline, links: Links, mine: Bool) -> I64:
    """Rows of the ops that try kernels out, in host order."""
    events = timeline.events
    kernels = timeline.rows(Kind.KERNEL)
    kernels = kernels[links.op[kernels] >= 0]
    kernels = kernels[mine[links.op[kernels]] & (events.kind[links.op[kernels]] == Kind.OP)]
    ops, inverse = np.unique(links.op[kernels], return_inverse=True)
    count = np.bincount(inverse.reshape(-1), minlength=len(ops))
    pairs = np.unique(np.stack([inverse.reshape(-1), events.name[kernels].astype(np.int64)]), axis=1)
    names = np.bincount(pairs[0], minlength=len(ops))
    timed = _event_waits(timeline, links, ops)
    tried = np.zeros(len(ops), bool)
    for name in np.unique(events.name[ops[(count >= FEWEST_TRIED) & (names >= FEWEST_NAMES)]]).tolist():
        at = np.flatnonzero(events.name[ops] == name)
        at = at[np.argsort(events.start[ops[at]], kind="stable")]
        many = (count[at] >= FEWEST_TRIED) & (names[at] >= FEWEST_NAMES)
        times = timed[at] >= FEWEST_TIMED
        few = count[at][~many]
        # Where every call does it, that is how this op works; unless it times its kernels.
        many &= times | (count[at] >= MANY_TIMES * float(np.median(few)) if len(few) else False)
        shape = shapes(timeline, ops[at])
        tried[at] = many & _is_first(shape) & ~_comes_again(shape, many)
    found = ops[tried]
    return found[np.argsort(events.start[found], kind="stable")]


def _event_waits(timeline: Timeline, links: Links, ops: I64) -> I64:
    """How often each of these ops (in order of rows) waits for an event."""
    of = links.op[timeline.rows_named(_WAITS_FOR_EVENT, Kind.RUNTIME)]
    return np.bincount(np.searchsorted(ops, of[np.isin(of, ops)]), minlength=len(ops))


def _is_first(shape: I64) -> Bool:
    """Of calls in order, the first with its shape; all whose shape is not known."""
    first = np.zeros(len(shape), bool)
    first[np.unique(shape, return_index=True)[1]] = True
    return first | (shape < 0)


def _comes_again(shape: I64, many: Bool) -> Bool:
    """Calls whose shape has so many kernels on a later call too: it is no trial then."""
    found = np.zeros(len(shape), bool)
    for one in np.unique(shape[many & (shape >= 0)]).tolist():
        at = np.flatnonzero(shape == one)
        found[at] = len(at) > 1 and bool(many[at[1:]].any())
    return found


# -- first calls: cuBLAS sets up its handle, cuDNN its plans, NCCL its rings ------------------------------
#
# Such a call is open, calls nothing that the trace shows and launches its kernel at last; no later call of
# the op does. Where later calls with other shapes do, it is the shapes that are set up (see above). An op
# that is called only once tells nothing by itself: it may work on the host. It counts where other calls of
# the file are first ones too.


def firsts(keys: I64, when: I64) -> Bool:
    """Of rows with keys, which are the first of theirs."""
    order = np.argsort(when, kind="stable")
    first = np.zeros(len(keys), bool)
    first[order[np.unique(keys[order], return_index=True)[1]]] = True
    return first


def first_set_ups(timeline: Timeline, links: Links, is_cold: bool) -> tuple[I64, I64, I64]:
    """Ops, starts and ends. `is_cold`: whether other calls of the file are start-up."""
    events = timeline.events
    ops = timeline.rows(Kind.OP)
    first = ops[firsts(events.name[ops].astype(np.int64), events.start[ops])]
    long = first[events.duration[first] >= PLAN_NS]
    launches = np.unique(links.launch[timeline.rows(*DEVICE_KINDS)])
    launches = launches[launches >= 0]
    found: list[Silence] = []
    for op in long[~timeline.bears(WRAPS, long)].tolist():
        inside = (events.start >= events.start[op]) & (events.end <= events.end[op])
        inside &= events.thread == events.thread[op]
        inside[op] = False
        until = int(events.start[launches[inside[launches]]].max(initial=events.start[op]))
        silent = _silent(timeline, op, np.flatnonzero(inside & events.is_kind(*NESTING_KINDS)), until)
        later = np.setdiff1d(ops[events.name[ops] == events.name[op]], [op])
        took = sum(end - start for _, start, end in silent)
        if events.duration[later].max(initial=0) < took and (is_cold or len(later)):
            found += silent
    rows, start, end = np.array(found, np.int64).reshape(-1, 3).T
    return rows, start, end
