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
from findwall.attribute.figures import a_step
from findwall.attribute.places import line_of
from findwall.attribute.whatif import without_recompute
from findwall.fixes import Fix, NoUse, Outcome, surely
from findwall.units import GIB

MOVES = ("recompute",)
ATOMS_ASKED = 8  # for a line of Python, the longest first. Chosen by hand, not calibrated.


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("recompute")
    if spent <= 0:
        return NoUse("the backward pass repeats no forward work")
    at = next(
        (line for atom in facts.atoms_of("recompute")[:ATOMS_ASKED].tolist() if (line := _line(facts, atom))),
        None,
    )
    return surely(
        f"Take `torch.utils.checkpoint` off some blocks{f' ({at})' if at else ''}, or make it selective: "
        f"repeating the forward pass takes {a_step(spent)}.{_room(facts)}",
        without_recompute(facts),
    )


def _line(facts: Facts, atom: int) -> str | None:
    return line_of(facts, facts.op_row(atom))


def _room(facts: Facts) -> str:
    """How much memory is left for it, where that is known."""
    devices = facts.timeline.header.devices
    total = devices[0].total_memory if devices else None
    if facts.run.peak_memory is None or not total:
        return ""
    return f" Peak memory is {facts.run.peak_memory / GIB:.1f} of {total / GIB:.0f} GiB."


FIX = Fix(MOVES, "needs-review", advise)
