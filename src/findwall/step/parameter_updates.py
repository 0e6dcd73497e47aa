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

import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool, Inputs, Kind, Timeline
from findwall.model.intervals import I64
from findwall.step.call_names import GRADIENT, OPTIMIZER_STEP, PROFILER_STEP
from findwall.step.step_facts import Links

Shape = tuple[int, ...]
_IN_PLACE = re.compile(r"[a-z0-9]_$")
# Which argument of an op is a weight: for a backward pass that hands its gradients out and keeps none.
_WEIGHT = {"aten::linear": 1, "aten::conv1d": 1, "aten::conv2d": 1, "aten::conv3d": 1, "aten::embedding": 0}


def own_updates(timeline: Timeline, links: Links, rows: I64) -> Bool:
    """Of these device rows, those that a job's own update of its parameters launched."""
    none = np.zeros(len(rows), bool)
    if not links.backward.any() or any(OPTIMIZER_STEP.match(name) for name in timeline.names):
        return none
    parameters = parameter_shapes(timeline)
    ops = np.unique(links.op[rows][links.launch[rows] >= 0])
    ops = ops[ops >= 0]
    window = between_passes(timeline, links, ops)
    ops, window = ops[window >= 0], window[window >= 0]
    on_parameters, changed = on_shapes(timeline, ops, parameters)
    changes = on_parameters & timeline.bears(_IN_PLACE, ops)
    covered = {shape for shape, changes_it in zip(changed, changes.tolist(), strict=True) if changes_it}
    if not parameters or len(covered) <= MAJORITY_SHARE * len(parameters):
        return none
    last = np.full(int(window.max()) + 1, -1, np.int64)
    np.maximum.at(last, window[changes], timeline.events.start[ops[changes]])
    return np.isin(links.op[rows], ops[on_parameters & (timeline.events.start[ops] <= last[window])])


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


def between_passes(timeline: Timeline, links: Links, ops: I64) -> I64:
    """For each op the number of the backward pass that it follows with no forward op between, else -1."""
    events = timeline.events
    engine = np.flatnonzero(links.backward & events.is_kind(Kind.OP))
    if len(engine) == 0:  # an annotation alone may be marked as backward
        return np.full(len(ops), -1, np.int64)
    engine = engine[np.argsort(events.start[engine], kind="stable")]
    done = np.maximum.accumulate(events.end[engine])
    forward = np.sort(events.start[np.unique(links.forward[links.forward >= 0])])
    at = events.start[ops]
    last = np.searchsorted(events.start[engine], at, side="right") - 1
    since = np.where(last >= 0, done[np.maximum(last, 0)], 0)
    until = np.append(forward, _end_of_step(timeline, int(done[-1])))
    passed = np.searchsorted(forward, since, side="right")
    follows = (last >= 0) & ~links.backward[ops] & (at >= since) & (at < until[passed])
    return np.where(follows, passed, -1)


def _end_of_step(timeline: Timeline, at: int) -> int:
    """Where the marked step ends in which the last backward pass does; at once where none is marked.

    What follows may be the forward pass of a step that is not all in the file.
    """
    events = timeline.events
    rows = timeline.rows_named(PROFILER_STEP, Kind.ANNOTATION)
    rows = rows[(events.start[rows] <= at) & (events.end[rows] >= at)]
    return int(events.end[rows].max()) if len(rows) else at


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
