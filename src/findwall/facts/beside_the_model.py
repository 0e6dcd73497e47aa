"""What a step does beside its model: averages of weights, work without gradients, statistics that are only
looked at, what comes behind."""

from __future__ import annotations

import numpy as np

from findwall.facts.facts import of_class, rows_of, serve
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.dataflow import Role
from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.step.called_ops import head_of, heads_of, records
from findwall.step.links import issuers
from findwall.step.step_facts import found_once
from findwall.work.work_facts import WorkFacts

_BESIDE: tuple[Role, ...] = ("data", "update", "average", "evaluation", "teacher", "metric", "other")


@found_once
def averages(facts: WorkFacts) -> I64:
    """The atoms of averages of the weights."""
    return np.flatnonzero(serve(facts, rows_of(facts, np.arange(len(facts.atoms.index))), "average"))


@found_once
def only_looked_at(facts: WorkFacts) -> I64:
    """The atoms of what is made of what training gave, and flows into nothing that is trained: statistics for
    a log."""
    return np.flatnonzero(serve(facts, rows_of(facts, np.arange(len(facts.atoms.index))), "metric"))


@found_once
def rows_beside_the_model(facts: WorkFacts) -> I64:
    """Device rows of a job that trains which neither its model nor its backward pass issues. What its loss is
    made from without gradients (returns, advantages, matched targets) no model makes that is trained."""
    rows = np.unique(rows_of(facts, np.arange(len(facts.atoms.index))))
    if not facts.links.backward.any():
        return rows[:0]
    return rows[serve(facts, rows, *_BESIDE) | (serve(facts, rows, "loss") & _without_gradients(facts, rows))]


def _without_gradients(facts: WorkFacts, rows: I64) -> Bool:
    """Which of these rows are of ops that record none, where the recording tells."""
    heads = heads_of(facts)
    numbered = records(facts, heads)
    by = issuers(facts.timeline, facts.links, rows)
    head = np.where(by >= 0, head_of(facts, heads)[by], -1)
    plain: Bool = (head >= 0) & ~np.isin(head, heads[numbered]) & bool(numbered.any())
    return plain


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
