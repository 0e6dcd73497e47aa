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

from findwall.attribute.facts import Facts
from findwall.attribute.places import line_of
from findwall.attribute.whatif import ideal
from findwall.fixes import Fix, Outcome, no_use, surely
from findwall.model.claims import Claim
from findwall.units import GIB

MOVES = ("recompute",)
ATOMS_ASKED = 8  # for a line of Python, the longest first. Chosen by hand, not calibrated.


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("recompute")
    if spent <= 0:
        return no_use("less-recompute/none")
    at = next(
        (line for atom in facts.atoms_of("recompute")[:ATOMS_ASKED].tolist() if (line := _line(facts, atom))),
        None,
    )
    figures = {"repeats_ms": spent, **_room(facts)}
    return surely(
        Claim("less-recompute/selective", figures, places=[at] if at else []), ideal(facts, "recompute")
    )


def _line(facts: Facts, atom: int) -> str | None:
    return line_of(facts, facts.op_row(atom))


def _room(facts: Facts) -> dict[str, float | None]:
    """How much memory is left for it, where that is known."""
    devices = facts.timeline.header.devices
    total = devices[0].total_memory if devices else None
    if facts.run.peak_memory is None or not total:
        return {"peak_gib": None, "total_gib": None}
    return {"peak_gib": facts.run.peak_memory / GIB, "total_gib": total / GIB}


FIX = Fix(MOVES, "needs-review", advise)
