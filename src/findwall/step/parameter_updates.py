"""Updates of parameters that a job writes itself, without an optimizer's range: its own Lion, its own SGD.

Told by when and on what: after a backward pass is done and before the next forward pass begins, ops change
tensors in place that have the shapes of the gradients which that pass has just written, of most of them. From
the backward pass to the last such change, what runs on those shapes is the update: its arithmetic, its
averages of the weights. The model's own pointwise ops lie before the backward pass; what comes after the last
change (a teacher's forward pass, an evaluation) is none of it.

An update that changes nothing in place is not seen. Where a range names an optimizer, that one is believed.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool, Inputs, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.call_names import GRADIENT, OPTIMIZER_CALL, OPTIMIZER_STEP, PROFILER_STEP, optimizers
from findwall.step.links import issuers, runs_in
from findwall.step.step_facts import Links, rows_matching

Shape = tuple[int, ...]
_IN_PLACE = re.compile(r"[a-z0-9]_$")
# Changes that mix something in: gradients that are zeroed and weights that are clipped are no averages.
MIXES = re.compile(r"^aten::(copy|lerp|add|sub|addcmul)_$")
# Which argument of an op is a weight: for a backward pass that hands its gradients out and keeps none.
_WEIGHT = {"aten::linear": 1, "aten::conv1d": 1, "aten::conv2d": 1, "aten::conv3d": 1, "aten::embedding": 0}


def updates(timeline: Timeline, links: Links, rows: I64, calls: re.Pattern[str] = OPTIMIZER_CALL) -> Bool:
    """Of all host rows, those of an update of the parameters: inside an optimizer's calls, or inside the ops
    by which a job updates them itself; the device rows tell which ops work."""
    ranges = rows_matching(timeline, timeline.rows(Kind.ANNOTATION, Kind.OP), calls)
    begin = timeline.events.start.copy()
    begin[ranges] = updates_begin(timeline, links, ranges)
    own = ranges[:0] if optimizers(timeline) else _own_updates(timeline, links, rows)
    call = runs_in(timeline, links, np.append(ranges, own))
    found: Bool = (call >= 0) & (timeline.events.start >= begin[call])
    return found


def stepping_kernels(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Which of these device rows are kernels of an update itself: not those that clear its gradients."""
    by = issuers(timeline, links, rows)
    mine = updates(timeline, links, rows, OPTIMIZER_STEP)[by]
    found: Bool = (by >= 0) & (timeline.events.kind[rows] == Kind.KERNEL) & mine
    return found


def _own_updates(timeline: Timeline, links: Links, rows: I64) -> I64:
    ops = np.unique(links.op[rows][links.launch[rows] >= 0])
    ops, window = between_passes(timeline, links, ops[ops >= 0])
    changed = changes_on(timeline, ops, parameter_shapes(timeline), _IN_PLACE)
    if changed is None:
        return ops[:0]
    last = np.full(int(window.max()) + 1, -1, np.int64)
    np.maximum.at(last, window[changed.changes], timeline.events.start[ops[changed.changes]])
    return ops[changed.on & (timeline.events.start[ops] <= last[window])]


def parameter_shapes(timeline: Timeline) -> set[Shape]:
    """Shapes of the gradients that are kept; where none are, of the weights that are multiplied with."""
    found = {inputs.shape(0) for inputs in _inputs(timeline, timeline.rows_named(GRADIENT, Kind.OP))}
    if not any(found):
        for name, argument in _WEIGHT.items():
            mine = timeline.rows_named(re.compile(f"^{name}$"), Kind.OP)
            found |= {inputs.shape(argument) for inputs in _inputs(timeline, mine)}
    return {shape for shape in found if shape and np.prod(shape) > 1}


def _inputs(timeline: Timeline, rows: I64) -> list[Inputs]:
    every = (timeline.details.inputs_of(one) for one in np.unique(timeline.events.inputs[rows]).tolist())
    return [one for one in every if one is not None]


def between_passes(timeline: Timeline, links: Links, ops: I64) -> tuple[I64, I64]:
    """Of these ops those that follow a backward pass with no forward op between, and the number of it."""
    events = timeline.events
    engine = np.flatnonzero(links.backward & events.is_kind(Kind.OP))
    if len(engine) == 0:  # an annotation alone may be marked as backward
        return ops[:0], ops[:0]
    engine = engine[np.argsort(events.start[engine], kind="stable")]
    done = np.maximum.accumulate(events.end[engine])
    forward = np.sort(events.start[np.unique(links.forward[links.forward >= 0])])
    at = events.start[ops]
    last = np.searchsorted(events.start[engine], at, side="right") - 1
    since = np.where(last >= 0, done[np.maximum(last, 0)], 0)
    until = np.append(forward, _end_of_step(timeline, int(done[-1])))
    passed = np.searchsorted(forward, since, side="right")
    follows = (last >= 0) & ~links.backward[ops] & (at >= since) & (at < until[passed])
    return ops[follows], passed[follows]


def _end_of_step(timeline: Timeline, at: int) -> int:
    """Where the marked step ends in which the last backward pass does; at once where none is marked.

    What follows may be the forward pass of a step that is not all in the file.
    """
    events = timeline.events
    rows = timeline.rows_named(PROFILER_STEP, Kind.ANNOTATION)
    rows = rows[(events.start[rows] <= at) & (events.end[rows] >= at)]
    return int(events.end[rows].max()) if len(rows) else at


class Changed(msgspec.Struct, frozen=True):
    """Which ops work on tensors that are shaped as the parameters, and which change one."""

    on: Bool
    changes: Bool


def changes_on(
    timeline: Timeline, ops: I64, parameters: set[Shape], change: re.Pattern[str]
) -> Changed | None:
    """None where the ops of such a name do not change most shapes of the parameters."""
    on, first = on_shapes(timeline, ops, parameters)
    changes = on & timeline.bears(change, ops)
    covered = {shape for shape, one in zip(first, changes.tolist(), strict=True) if one} & parameters
    return Changed(on, changes) if len(covered) > MAJORITY_SHARE * len(parameters) else None


def on_shapes(timeline: Timeline, ops: I64, wanted: set[Shape]) -> tuple[Bool, list[Shape]]:
    """Of each op whether one of its tensors has such a shape, and that of its first: what it would change."""
    ids, inverse = np.unique(timeline.events.inputs[ops], return_inverse=True)
    every = [timeline.details.inputs_of(one) or Inputs() for one in ids.tolist()]
    on_wanted = [any(one.shape(at) in wanted for at in range(len(one.dims))) for one in every]
    firsts = [one.shape(0) for one in every]
    changes = inverse.reshape(-1).tolist()
    return np.array([on_wanted[at] for at in changes], bool), [firsts[at] for at in changes]


# -- an optimizer's call that holds the whole step --------------------------------------------------------
#
# A closure that is handed to it runs forward and backward. Lightning always trains so, and LBFGS needs it.
# What the closure runs is no part of the optimizer, though it runs inside its range: that begins when the
# last backward pass inside the range is done.


def updates_begin(timeline: Timeline, links: Links, ranges: I64) -> I64:
    """For each of an optimizer's ranges, when its own work begins."""
    events = timeline.events
    engine = np.flatnonzero(links.backward & events.is_kind(Kind.OP))
    engine = engine[np.argsort(events.start[engine], kind="stable")]
    begin: I64 = events.start[ranges].copy()
    if len(engine) == 0:
        return begin
    done = np.maximum.accumulate(events.end[engine])
    last = np.searchsorted(events.start[engine], events.end[ranges], side="left") - 1
    at = np.maximum(last, 0)
    # An optimizer that steps inside the backward pass, as each gradient is there, has no closure.
    closure = ~links.backward[ranges] & (last >= 0) & (events.start[engine[at]] >= begin)
    return np.where(closure, np.minimum(done[at], events.end[ranges]), begin)
