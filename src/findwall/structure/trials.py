"""Ops that try out kernels for a shape they have not had: cuDNN's benchmark, a GEMM's autotuning.

With `torch.backends.cudnn.benchmark` a convolution runs every kernel it has on the first call with a shape,
and waits for each. Such a call launches many times the kernels of the op's other calls, by many names. It is
told by that and by the shape: on a later call with the same one it does not try again. All of the call is
set-up, on the host and on the device.

Where every call has a shape of its own there is no usual call to hold it against. A call then tells it
alone: it waits for events, once for each kernel tried, which is how kernels are timed. An op that only works
never asks how long it took.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import I64
from findwall.structure.links import Links
from findwall.structure.plans import shapes

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
    calls = timeline.rows(Kind.RUNTIME)
    if len(ops) == 0 or len(calls) == 0:
        return np.zeros(len(ops), np.int64)
    calls = calls[timeline.named(_WAITS_FOR_EVENT, calls)[timeline.events.name[calls]]]
    of = links.op[calls]
    found: I64 = np.bincount(np.searchsorted(ops, of[np.isin(of, ops)]), minlength=len(ops))
    return found


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
