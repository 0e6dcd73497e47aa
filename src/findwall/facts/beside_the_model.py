"""What a step does beside its model: averages of weights, work without gradients, what comes behind."""

from __future__ import annotations

import re

import numpy as np

from findwall.facts.facts import of_class, rows_of
from findwall.facts.gradient_free_work import backward_starts, unrecorded_rows
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.dataflow import Role
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.call_names import OPTIMIZER_STEP
from findwall.step.parameter_updates import between_passes, on_shapes, parameter_shapes
from findwall.step.step_facts import StepFacts, found_once, rows_matching
from findwall.work.work_facts import WorkFacts

_BESIDE: tuple[Role, ...] = ("update", "average", "evaluation", "teacher", "metric")
_MODEL: tuple[Role, ...] = ("forward", "loss", "backward")


@found_once
def averages(facts: WorkFacts) -> I64:
    """The atoms of it, if there is one."""
    timeline, links = facts.timeline, facts.links
    atoms = np.flatnonzero(~of_class(facts, "optimizer", *MATRIX_CLASSES))
    rows = facts.kernels.row[facts.atoms.index[atoms]]
    ops = np.unique(links.op[rows])
    ops = ops[ops >= 0]
    ops = ops[_behind_optimizer(facts, ops)]
    wanted = parameter_shapes(timeline)
    if len(ops) == 0 or not wanted:
        return np.zeros(0, np.int64)
    window = between_passes(timeline, links, ops)
    ops, window = ops[window >= 0], window[window >= 0]
    on_weights, changed = on_shapes(timeline, ops, wanted)
    changes = on_weights & timeline.named(_MIXES, ops)[timeline.events.name[ops]]
    covered = {shape for shape, one in zip(changed, changes.tolist(), strict=True) if one} & wanted
    if len(covered) <= MAJORITY_SHARE * len(wanted):
        return np.zeros(0, np.int64)
    at, windows = timeline.events.start[ops], int(window.max()) + 1
    first, last = np.full(windows, np.iinfo(np.int64).max), np.full(windows, -1, np.int64)
    np.minimum.at(first, window[on_weights], at[on_weights])
    np.maximum.at(last, window[changes], at[changes])
    found = ops[(at >= first[window]) & (at <= last[window])]
    return atoms[np.isin(links.op[rows], np.append(found, _before_any_pass(facts, found, links.op[rows])))]


@found_once
def average_writes(facts: WorkFacts) -> I64:
    """Of the average's atoms those that write it: one for each tensor, however many ops lead to it."""
    atoms, wanted = averages(facts), parameter_shapes(facts.timeline)
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    on_weights, _ = on_shapes(facts.timeline, ops, wanted)
    return atoms[on_weights & facts.timeline.named(_MIXES, ops)[facts.timeline.events.name[ops]]]


def _before_any_pass(facts: StepFacts, found: I64, ops: I64) -> I64:
    """The same ops on the same shapes ahead of the first pass: a recording that begins behind an optimizer's
    step has an average in front whose optimizer it does not show."""
    events, links = facts.timeline.events, facts.links
    ops = np.unique(ops[ops >= 0])
    passes = np.append(links.forward[links.forward >= 0], np.flatnonzero(links.backward))
    if len(passes) == 0 or len(found) == 0:
        return ops[:0]
    ops = ops[events.start[ops] < events.start[passes].min()]
    kinds = events.inputs.astype(np.int64) * len(facts.timeline.names) + events.name
    ops, every = ops[np.isin(kinds[ops], kinds[found])], np.unique(kinds[found])
    return ops if len(np.unique(kinds[ops])) > MAJORITY_SHARE * len(every) else ops[:0]


def _behind_optimizer(facts: StepFacts, ops: I64) -> Bool:
    """Which of these come after an optimizer's step, with no backward pass between: clipping is not one."""
    events = facts.timeline.events
    ranges = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    ends = np.sort(events.end[ranges])
    engine = backward_starts(facts)
    at = events.start[ops]
    done = np.append(-1, ends)[np.searchsorted(ends, at, side="right")]
    return done > np.append(-1, engine)[np.searchsorted(engine, at)]


@found_once
def rows_beside_the_model(facts: WorkFacts) -> I64:
    """Device rows without gradients, and those of an average of the weights."""
    rows = np.unique(rows_of(facts, np.arange(len(facts.atoms.index))))
    by_trace = np.isin(rows, np.union1d(unrecorded_rows(facts), rows_of(facts, averages(facts))))
    return rows[facts.by_role(facts.links.launch[rows], by_trace, _BESIDE, _MODEL)]


@found_once
def beside_the_model(facts: WorkFacts) -> Bool:
    """Which atoms are of such rows."""
    return np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), rows_beside_the_model(facts))


@found_once
def behind_the_products(facts: WorkFacts) -> I64:
    """The atoms of it, forward and backward."""
    row, launch = facts.queue.row, facts.links.launch[facts.queue.row]
    back = (launch >= 0) & facts.links.backward[np.maximum(launch, 0)]
    products = np.flatnonzero(np.isin(row, rows_of(facts, np.flatnonzero(of_class(facts, *MATRIX_CLASSES)))))
    if len(products) == 0:
        return np.zeros(0, np.int64)
    place = np.arange(len(row))
    before, after = np.searchsorted(products, place) - 1, np.searchsorted(products, place, side="right")
    known = (before >= 0) & (after < len(products)) & ~np.isin(place, products)
    before, after = products[np.maximum(before, 0)], products[np.minimum(after, len(products) - 1)]
    mine = known & ~back[before] & back[after] & (facts.queue.step[before] == facts.queue.step[after])
    return np.flatnonzero(np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), row[mine]))


# Changes that mix something in: gradients that are zeroed and weights that are clipped are no averages.
_MIXES = re.compile(r"^aten::(copy|lerp|add|sub|addcmul)_$")
