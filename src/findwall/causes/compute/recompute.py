"""Forward work is done a second time during backward: activation checkpointing.

What it finds:
Kernels of forward ops that the autograd engine launches: what checkpointing recomputes instead of
having kept it. Where the host is slower than the device, also the time the device waits for those
launches, and for the first one after a checkpoint is entered or left.

Why it costs:
Checkpointing trades compute for memory. A fully checkpointed model does its forward twice, about a
third more work per step. The host pays as well: it issues those kernels again, and the Python around
each checkpoint takes its time.

How it is told apart:
Checkpointing has no op of its own; its mark is forward ops nested under the autograd engine. It takes
its kernels before every other cause, since without it they would not run at all, and their launches
before launch-bound.

What helps:
less-recompute: switch checkpointing off where memory allows, checkpoint fewer blocks, or recompute
only cheap ops (selective checkpointing). Memory for that comes from bf16-autocast, sdpa or a smaller
batch.
"""

from __future__ import annotations

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Figures, Told
from findwall.facts.cause_kernels import kernel_evidence
from findwall.step.step_facts import StepFacts
from findwall.units import GIB, LEAST_SHOWN_MS, ms

NAME = "recompute"


def shows(facts: Facts) -> list[Evidence]:
    found = kernel_evidence(facts, NAME)
    waited = ms(facts.reading.likely.idle[NAME])
    if waited < LEAST_SHOWN_MS:
        return found
    late = Evidence(ms=waited, claim=Claim("evidence/checkpointing", {"waits_ms": waited}))
    return [*found[: EVIDENCE_ROWS - 1], late]


def says(facts: StepFacts) -> Told:
    return Told(Claim("recompute/forward-again"), Claim("advise/less-recompute", _room(facts)))


def _room(facts: StepFacts) -> Figures:
    """How much memory is left to keep activations in, where both figures are known."""
    peak = facts.run.peak_memory
    totals = [device.total_memory for device in facts.timeline.header.devices if device.total_memory]
    return {"used_gib": peak / GIB, "total_gib": totals[0] / GIB} if peak and totals else {}


CAUSE = Cause(NAME, says, shows, kernels=False)
