"""What each op of a step is for, as far as the trace alone tells.

A job that trains: autograd's engine runs the `backward` pass, and what records gradients is `forward`. An
optimizer's call is the `update`, with what gets the gradients ready for it behind the last backward pass;
where nothing names an optimizer, the job's own update is. What mixes something into most of the weights'
shapes behind an optimizer's step is an `average`. Who makes a tensor from nothing serves somebody else, and
nobody knows whom. All that is left records no gradients: `other`; a trace does not show where its results go.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.dataflow import ROLES, Role
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import OPTIMIZER_STEP
from findwall.step.called_ops import MADE_FROM_NOTHING, backward_starts, head_of, heads_of, records
from findwall.step.links import runs_in
from findwall.step.parameter_updates import (
    MIXES,
    between_passes,
    changes_on,
    parameter_shapes,
    updates,
    updates_begin,
)
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.work.work_facts import WorkFacts

_MAKES = re.compile(rf"^aten::({MADE_FROM_NOTHING})|^TorchDynamo Cache Lookup")


def traced_roles(facts: WorkFacts) -> I64:
    """The role of each row of the host, into ROLES; -1 unknown. A job that does not train has none."""
    links = facts.links
    found = np.full(len(facts.timeline.events), -1, np.int64)
    update = updates(facts.timeline, links, facts.kernels.row)
    if links.backward.any():
        _by_heads(facts, found)
        found[links.backward] = _code("backward")
        averages = _averages(facts)
        found[runs_in(facts.timeline, links, averages) >= 0] = _code("average")
    found[update] = _code("update")
    return found


def _code(role: Role) -> int:
    return ROLES.index(role)


def _by_heads(facts: StepFacts, found: I64) -> None:
    """What an op is for that Python called, all is that runs inside it."""
    timeline, heads = facts.timeline, heads_of(facts)
    recording = records(facts, heads)
    if not recording.any():
        return
    makes = timeline.named(_MAKES, heads)[timeline.events.name[heads]]
    of = np.where(recording, _code("forward"), np.where(makes, -1, _code("other")))
    of[~recording & _readies(facts, heads)] = _code("update")
    found[heads] = of
    head = head_of(facts, heads)
    found[:] = np.where(head >= 0, found[head], -1)


def _readies(facts: StepFacts, heads: I64) -> Bool:
    """Ops between a backward pass and the optimizer's step that follows it."""
    timeline = facts.timeline
    ranges = rows_matching(timeline, timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    begins = np.sort(updates_begin(timeline, facts.links, ranges))
    at, engine = timeline.events.start[heads], backward_starts(facts)
    following = np.append(begins, np.iinfo(np.int64).max)[np.searchsorted(begins, at)]
    passes = np.searchsorted(engine, at)
    known = (passes > 0) & (following < np.iinfo(np.int64).max)
    found: Bool = known & (passes == np.searchsorted(engine, following))
    return found


def _averages(facts: WorkFacts) -> I64:
    """The ops of averages of the weights that launch something."""
    timeline, links, kernels = facts.timeline, facts.links, facts.kernels
    plain = ~kernels.is_class("optimizer", *MATRIX_CLASSES)
    every = np.unique(links.op[kernels.row[plain]])
    every = every[every >= 0]
    ops = every[_behind_optimizer(facts, every)]
    ops, window = between_passes(timeline, links, ops)
    changed = changes_on(timeline, ops, parameter_shapes(timeline), MIXES)
    if changed is None:
        return ops[:0]
    at, windows = timeline.events.start[ops], int(window.max()) + 1
    first, last = np.full(windows, np.iinfo(np.int64).max), np.full(windows, -1, np.int64)
    np.minimum.at(first, window[changed.on], at[changed.on])
    np.maximum.at(last, window[changed.changes], at[changed.changes])
    found = ops[(at >= first[window]) & (at <= last[window])]
    return np.append(found, _before_any_pass(facts, found, every))


def _behind_optimizer(facts: StepFacts, ops: I64) -> Bool:
    """Which of these come after an optimizer's step, with no backward pass between: clipping is not one."""
    events = facts.timeline.events
    ranges = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    ends = np.sort(events.end[ranges])
    engine = backward_starts(facts)
    at = events.start[ops]
    done = np.append(-1, ends)[np.searchsorted(ends, at, side="right")]
    return done > np.append(-1, engine)[np.searchsorted(engine, at)]


def _before_any_pass(facts: StepFacts, found: I64, ops: I64) -> I64:
    """The same ops on the same shapes ahead of the first pass: a recording that begins behind an optimizer's
    step has an average in front whose optimizer it does not show."""
    events, links = facts.timeline.events, facts.links
    passes = np.append(links.forward[links.forward >= 0], np.flatnonzero(links.backward))
    if len(passes) == 0:
        return ops[:0]
    ops = ops[events.start[ops] < events.start[passes].min()]
    kinds = events.inputs.astype(np.int64) * len(facts.timeline.names) + events.name
    ops, every = ops[np.isin(kinds[ops], kinds[found])], np.unique(kinds[found])
    return ops if len(np.unique(kinds[ops])) > MAJORITY_SHARE * len(every) else ops[:0]
