"""Evaluate, and work out what is only logged, every n steps instead of in each.

What it does:
A job that trains needs gradients. Forward work under `torch.no_grad()` or `torch.inference_mode()` in every
step is often an evaluation that was meant to come now and then: it takes as long as its batches say, at
whatever speed. Every n steps, it costs the n-th part:

    if step % 500 == 0:
        validate(model, val_loader)

Statistics for a log (norms and histograms of gradients, accuracies) are the same: they are made of what
training gave, and nothing that is trained needs them.

Where a smaller part of the data tells as much, evaluate on that.

When it does not help:
Training uses the results: a teacher's logits, a target network's values, a rollout, samples of a generator. A
trace does not show what becomes of a tensor: read the line before you change it. The job decides by a number
that looks like a statistic: it skips a step, or stops early.

Risk:
A best checkpoint or an early stop that each evaluation decides is decided less often.
"""

from __future__ import annotations

from findwall.facts.beside_the_model import only_looked_at
from findwall.facts.best_changes import left_out
from findwall.facts.gradient_free_work import is_forward_work, without_gradients
from findwall.facts.user_lines import line_of_most
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gone, ideal, no_use, step_ms, time_of
from findwall.fixes.less_work.removed_work import causes_of
from findwall.model.catalogue import ROOFS, UNNEEDED, WORTH_IT
from findwall.model.claims import lines
from findwall.replay.change import Change, NoHostWork
from findwall.step.timed_steps import RARE, beyond_usual_ns, untraced_evaluations
from findwall.units import ms

# What such a pass is mostly made of.
MOVES = (
    UNNEEDED,
    *ROOFS,
    "slow-kernels",
    "fast-path-off",
    "misaligned-shapes",
    "unfused-pointwise",
    "unfused-attention",
    "launch-bound",
    RARE,
)


def use(facts: Facts) -> Outcome:
    found = without_gradients(facts)
    if found is None:
        return _looked_at(facts) or _untraced(facts)
    if found.flows_into == "loss":
        return no_use("evaluate-less-often/needed")
    change = gone(facts, found.atoms) + Change((NoHostWork(found.later),))
    way = "evaluates" if found.evaluates else "may-evaluate"
    return Use(
        Claim(f"evaluate-less-often/{way}", parts=[is_forward_work(found)]),
        change,
        causes_of(facts, found.atoms, MOVES),
        after_others=not found.evaluates,  # training may need it: then it gives nothing
        likely=(lambda made: change) if found.evaluates else None,
        uncurved=True,
        condition="is-an-evaluation",
    )


def _looked_at(facts: Facts) -> Use | None:
    """Statistics of every step, where the graph shows that they flow into nothing that is trained."""
    atoms = only_looked_at(facts)
    change = left_out(facts, atoms)
    spent = time_of(facts, atoms)
    if spent < WORTH_IT * step_ms(facts):
        return None
    return Use(
        Claim("evaluate-less-often/looked-at", {"spent_ms": spent}, places=lines(line_of_most(facts, atoms))),
        change,
        causes_of(facts, atoms, MOVES),
        likely=lambda made: change,
        uncurved=True,
        condition="is-only-looked-at",
    )


def _untraced(facts: Facts) -> Outcome:
    """Steps that evaluate and that the trace holds none of: how long they are is known, and what they do."""
    kinds = untraced_evaluations(facts.rank, facts.timeline, facts.queue)
    if not kinds:
        return no_use("evaluate-less-often/none")
    longest = max(kinds, key=lambda kind: kind.share * kind.mean)
    spent = ms(beyond_usual_ns(facts.rank, kinds))
    figures = {"spent_ms": spent, "step_share": spent / step_ms(facts), "every": longest.every}
    return Use(
        Claim("evaluate-less-often/now-and-then", {**figures, "long_ms": longest.mean * 1e3}),
        ideal(facts, RARE),
        (RARE,),
        condition="is-an-evaluation",
    )


FIX = Fix(MOVES, "needs-review", use, removes=True)
