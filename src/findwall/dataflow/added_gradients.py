"""Gradients that nobody uses: of a teacher that is in the graph, of layers in front that no optimizer steps.

An optimizer takes its gradients away after each step (`zero_grad`), so that the next backward pass gives each
of its parameters a fresh one. Where a pass adds to the gradients of some parameters while others get fresh
ones, nobody took those away: no optimizer has them. What the backward pass does for ops in front of the first
parameter that is trained gives nothing but such gradients.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import GRADIENT, in_window
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.work_facts import WorkFacts

ADDS = "aten::add_"


class Unused(msgspec.Struct, frozen=True):
    """What the backward pass does for nothing."""

    atoms: I64
    parameters: int  # with a gradient that nobody takes away, of a step
    op: int  # the first op of the forward pass that need not have a gradient


@found_once
def unused_gradients(facts: WorkFacts) -> Unused | None:
    """None where all gradients are fresh, where all are added to, and where a trace cannot tell."""
    given = in_window(facts, facts.timeline.rows_named(GRADIENT, Kind.OP))
    events, links = facts.timeline.events, facts.links
    given = given[np.argsort(events.start[given], kind="stable")]
    added = _adds(facts, given)
    if added.all() or not added.any():
        return None
    of = _forward_op(facts, given)
    step = np.searchsorted(facts.steps.host, events.start[given], side="right")
    if (of < 0).any():
        return None
    # In each step: what is called in front of the first op with a parameter that is trained.
    trained = {one: events.start[of[(step == one) & ~added]].min() for one in np.unique(step[~added])}
    in_front = np.array([events.start[of[at]] < trained.get(step[at], 0) for at in range(len(given))])
    # A second backward pass of a step adds to what the first one gave: that is no sign of anything.
    if (added != in_front).any():
        return None
    op = facts.kernels.op[facts.atoms.index]
    backward = (op >= 0) & links.backward[np.maximum(op, 0)]
    called = np.where(backward, links.forward[np.maximum(op, 0)], -1)
    when = np.where(called >= 0, events.start[np.maximum(called, 0)], -1)
    in_step = np.searchsorted(facts.steps.host, when, side="right")
    limit = np.array([trained.get(one, 0) for one in in_step.tolist()])
    keeps = _inside(facts, op, given[added])
    atoms = np.flatnonzero(((called >= 0) & (when < limit)) | keeps)
    first = int(of[added][np.argmin(events.start[of[added]])])
    return Unused(atoms, round(int(added.sum()) / facts.steps.count), first)


def _adds(facts: StepFacts, given: I64) -> Bool:
    """Whether each gradient is added to one that is there."""
    wanted = [at for at, name in enumerate(facts.timeline.names) if name == ADDS]
    adds = np.flatnonzero(np.isin(facts.timeline.events.name, wanted))
    return np.isin(given, facts.links.parent[adds])


def _forward_op(facts: StepFacts, given: I64) -> I64:
    """The op whose backward gave each gradient: autograd hands it over as soon as it has it."""
    events, links = facts.timeline.events, facts.links
    linked = np.flatnonzero(links.backward & (links.forward >= 0))
    linked = linked[np.argsort(events.start[linked], kind="stable")]
    at = np.searchsorted(events.start[linked], events.start[given], side="left") - 1
    before = linked[np.maximum(at, 0)]
    known = (at >= 0) & (events.thread[before] == events.thread[given])
    return np.where(known, links.forward[before], -1)


def _inside(facts: WorkFacts, op: I64, rows: I64) -> Bool:
    """Which ops lie in one of these rows."""
    parent = np.where(op >= 0, facts.links.parent[np.maximum(op, 0)], -1)
    return (op >= 0) & (np.isin(op, rows) | np.isin(parent, rows))
