"""Forward work is done a second time during backward: activation checkpointing.

What it finds:
Kernels of forward ops that the autograd engine launches: what checkpointing recomputes instead of
having kept it.

Why it costs:
Checkpointing trades compute for memory. A fully checkpointed model does its forward twice, about a
third more work per step.

How it is told apart:
Checkpointing has no op of its own; its mark is forward ops nested under the autograd engine. It takes
its kernels before every other cause, since without it they would not run at all.

What helps:
less-recompute: switch checkpointing off where memory allows, checkpoint fewer blocks, or recompute
only cheap ops (selective checkpointing). Memory for that comes from bf16-autocast, sdpa or a smaller
batch.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import Evidence
from findwall.units import GIB

CAUSE = "recompute"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    fact = (
        f"{opening(facts, CAUSE)} repeats the forward pass inside backward because activations are "
        "checkpointed"
    )
    return told(facts, CAUSE, fact, f"checkpoint fewer blocks, or none{_room(facts)}")


def _room(facts: Facts) -> str:
    """How much memory is left to keep activations in, where both figures are known."""
    peak = facts.run.peak_memory
    totals = [device.total_memory for device in facts.timeline.header.devices if device.total_memory]
    if not peak or not totals:
        return " (the trace does not say how much memory is free)"
    return f" ({peak / GIB:.0f} of {totals[0] / GIB:.0f} GiB are in use)"
