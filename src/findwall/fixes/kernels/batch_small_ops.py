"""Do many small ops of the same shape at once: `bmm`, or one call on a larger batch.

What it does:
A hundred products of small matrices, or a model called for one row after the other, are a hundred launches
of kernels that fill a corner of the device each. Stacked they are one:

    torch.bmm(torch.stack(a), torch.stack(b))     # instead of [x @ y for x, y in zip(a, b)]
    model(rows)                                   # instead of [model(row) for row in rows]

`torch.vmap` and `torch.func.stack_module_state` do the same for functions and for ensembles of models;
experts of a mixture have grouped matmuls; sequences of several lengths are padded or packed.

When it does not help:
Each op needs the result of the one before (decoding token by token, recurrence): that can be recorded as a
CUDA graph, not batched. Ops that fill the device gain nothing.

Risk:
Stacking copies its inputs and holds all results at once. Batch norms and gradients that are clipped by sample
see another batch than before.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.best_changes import passes_ns
from findwall.facts.gains import launch_idle
from findwall.facts.host_loops import Loop, loop_line, loops, multiplies
from findwall.facts.likely_times import calls_a_step
from findwall.facts.op_shapes import shapes_text
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    free_launches,
    gain_ms,
    ideal,
    is_compiled,
    lines,
    no_use,
    pieces,
    rows_of,
    small_kernels,
    step_ms,
    to_floor,
    unless,
)
from findwall.fixes.refusals import REPLAYED
from findwall.model.catalogue import FEWEST_REPEATS, MENTION_SHARE, WORTH_IT
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, Ready
from findwall.step.call_names import OPTIMIZER_STEP, in_window
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.work.work_facts import WorkFacts


def use(facts: Facts) -> Outcome:
    products = [one for one in loops(facts) if one.body == 1 and multiplies(facts, one)]
    launches = small_kernels(facts) * facts.steps.count
    atoms = np.concatenate([one.atoms for one in products]) if products else np.zeros(0, np.int64)
    if len(atoms) > WORTH_IT * launches:
        return Use(_one_call(facts, products), _best(facts, atoms))
    updates = _updates(facts)
    if updates >= FEWEST_REPEATS:
        issued: Figures = {"updates": updates, "issued": small_kernels(facts), "pieces": pieces(facts)}
        return Use(
            Claim("batch-small-ops/one-model", {**issued, "waits_ms": launch_idle(facts)}),
            _as_one(facts, updates),
            ("launch-bound", "host-work"),
        )
    calls = calls_a_step(facts)
    if calls >= FEWEST_REPEATS and not is_compiled(facts):
        issues: Figures = {
            "calls": calls,
            "issued": small_kernels(facts),
            "pieces": pieces(facts),
            "waits_ms": launch_idle(facts),
        }
        return Use(
            Claim("batch-small-ops/one-model-call", issues),
            _all_at_once(facts),
            condition="calls-independent",
        )
    return no_use("batch-small-ops/none-again")


def _updates(facts: StepFacts) -> float:
    """How often an optimizer is called in a step: as many models, each trained by itself."""
    rows = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    return len(in_window(facts, rows)) / facts.steps.count


def _one_call(facts: WorkFacts, products: list[Loop]) -> Claim:
    longest = max(products, key=lambda one: one.rounds)
    op = facts.op_row(int(longest.atoms[0]))
    rounds = sum(one.rounds for one in products)
    return Claim(
        "batch-small-ops/bmm",
        {"products": rounds / facts.steps.count, "rounds": longest.rounds},
        {"op": facts.timeline.name_of(op), "shapes": shapes_text(facts, op)},
        lines(loop_line(facts, longest)),
    )


def _best(facts: WorkFacts, atoms: I64) -> Change:
    """Nothing to launch for these, and no kernel longer than its floor."""
    small = np.intersect1d(atoms, facts.atoms.of("launch-bound"))
    return to_floor(facts, small) + free_launches(facts, atoms)


def _all_at_once(facts: WorkFacts) -> Change:
    """The same of everything, one kernel right after the other: what is called beside each run of the model,
    as an optimizer for each of many, is called once as well."""
    atoms = np.arange(len(facts.atoms.index))
    at_once = Change((Ready(np.unique(rows_of(facts, atoms)), turn=0.0),))
    return to_floor(facts, atoms) + free_launches(facts) + at_once


def _as_one(facts: Facts, models: float) -> Change:
    """Of so many kernels one that takes as long, unless they fill the device; and the Python around one model
    alone, which is nothing beside that around all."""
    atoms = np.arange(len(facts.atoms.index))
    least = np.fmax(passes_ns(facts, atoms), facts.atoms.own / models)
    rows = np.unique(rows_of(facts, atoms))
    at_once = Change((Ready(rows, turn=0.0),)) + free_launches(facts)
    return to_floor(facts, atoms, least) + at_once + ideal(facts, "host-work")


FIX = Fix(
    ("launch-bound", "host-work"),
    "needs-review",
    use,
    (
        REPLAYED,
        unless(
            "batch-small-ops/hidden",
            lambda facts: gain_ms(facts, "launch-bound") <= MENTION_SHARE * step_ms(facts),
        ),
    ),
)
