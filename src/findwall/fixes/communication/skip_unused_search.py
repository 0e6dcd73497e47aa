"""Do not search for unused parameters in every pass: `find_unused_parameters=False`.

What it does:
With `find_unused_parameters=True` DistributedDataParallel walks the whole graph after each forward pass, on
the host, and reduces a list of which parameters were used after each backward pass. Where all of them are
used in every pass, both are for nothing:

    DistributedDataParallel(model, find_unused_parameters=False)

When it does not help:
Some parameters have no gradient in some passes: without the search the next pass ends with an error.

Risk:
A pass that leaves parameters out, in steps that were not traced, ends with that error. `static_graph=True`
serves where always the same ones are left out.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.facts.message_traffic import counted_parameters
from findwall.fixes import Claim, Facts, Figures, Fix, NoUse, Outcome, Use, cannot_tell, unless
from findwall.fixes.communication.communication_refusals import NOT_DATA_PARALLEL
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop
from findwall.step.call_names import GRADIENT, in_window
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.units import ms

SEARCH = re.compile(r"^torch\.distributed\.ddp\.reducer::search_unused_parameters$")
MOVES = ("launch-bound", "exposed-collective", "small-collectives")


def use(facts: Facts) -> Outcome:
    rows, parameters = counted_parameters(facts)
    if parameters is None:
        return cannot_tell("skip-unused-search/unknown")
    searches, events = in_window(facts, _searches(facts)), facts.timeline.events
    fewest = int(_gradients(facts).min())
    if fewest < parameters:
        return NoUse(Claim("skip-unused-search/needed", {"parameters": parameters, "used": fewest}))
    spent = float((events.end[searches] - events.start[searches]).sum()) / facts.steps.count
    figures: Figures = {"parameters": parameters, "search_ms": ms(spent)}
    return Use(Claim("skip-unused-search/off", figures), Change((Drop(rows),)))


def _searches(facts: StepFacts) -> I64:
    rows = facts.timeline.rows(Kind.OP, Kind.ANNOTATION)
    return rows_matching(facts.timeline, rows, SEARCH)


def _gradients(facts: StepFacts) -> I64:
    """How many parameters get a gradient after each search but the last, which the window may cut."""
    start = facts.timeline.events.start
    made = rows_matching(facts.timeline, facts.timeline.rows(Kind.OP), GRADIENT)
    which = np.searchsorted(np.sort(start[_searches(facts)]), start[made], side="right")
    found: I64 = np.bincount(which, minlength=len(_searches(facts)) + 1)[1:]
    return found[:-1] if len(found) > 1 else found


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        NOT_DATA_PARALLEL,
        unless("skip-unused-search/none", lambda facts: len(_searches(facts)) == 0),
    ),
)
