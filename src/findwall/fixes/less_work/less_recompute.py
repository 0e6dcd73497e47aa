"""Checkpoint fewer activations, so that the backward pass computes less of the forward pass again.

What it does:
Activation checkpointing drops activations and computes them again in the backward pass: memory for
20 to 33 % more time. Where memory is left, checkpoint every second block, only the largest ones, or
only what is cheap to compute (selective checkpointing), until memory is full again.

When it does not help:
Nothing is recomputed, or memory is full: then a smaller batch without checkpointing may still be
faster for each sample.

Risk:
Out of memory. The results are the same.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY, Call
from findwall.apply.roots import roots
from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Fix, Outcome, ideal, lines, surely, takes_nothing, unless
from findwall.step.step_facts import StepFacts
from findwall.units import GIB

ATOMS_ASKED = 8  # for a line of Python, the longest first. Chosen by hand, not calibrated.


def use(facts: Facts) -> Outcome:
    atoms = facts.atoms_of("recompute")[:ATOMS_ASKED].tolist()
    places = lines(*(line_of(facts, facts.op_row(atom)) for atom in atoms))
    figures = {"repeats_ms": facts.spent_ms("recompute"), **_room(facts)}
    return surely(Claim("less-recompute/selective", figures, places=places[:1]), ideal(facts, "recompute"))


def _room(facts: StepFacts) -> dict[str, float | None]:
    """How much memory is left for it, where that is known."""
    devices = facts.timeline.header.devices
    total = devices[0].total_memory if devices else None
    if facts.run.peak_memory is None or not total:
        return {"peak_gib": None, "total_gib": None}
    return {"peak_gib": facts.run.peak_memory / GIB, "total_gib": total / GIB}


def shows(torch: Any, effect: Effect) -> None:
    """Models are called, and nothing in them is checkpointed."""
    called: list[bool] = []
    checkpoints: list[bool] = []

    def noted(original: Call) -> Call:
        @functools.wraps(original)
        def checkpoint(*args: Any, **kwargs: Any) -> Any:
            checkpoints.append(True)
            return original(*args, **kwargs)

        return checkpoint

    module = importlib.import_module("torch.utils.checkpoint")
    REGISTRY.wrap("less-recompute", module, "checkpoint", noted, past_end=APPLIED)
    roots(torch).tell(lambda _module, _args: called.append(True))
    effect.missed("the job still checkpoints activations")
    effect.at_end(lambda: "no call of a checkpoint in the job's models" if called and not checkpoints else "")


FIX = Fix(
    ("recompute",),
    "needs-review",
    use,
    (unless("less-recompute/none", takes_nothing("recompute")),),
    shows=shows,
)
