"""The optimizer updates parameters in many passes over memory instead of one.

What it finds:
Kernels launched inside an optimizer's step, or of foreach arithmetic, that are not a fused optimizer's.

Why it costs:
An update reads parameter, gradient and state and writes parameter and state. Done op by op (or list by
list: foreach) each intermediate is written and read again: AdamW moves about three times the bytes of
one fused kernel.

How it is told apart:
By the range `Optimizer.step#…` or the kernel's class. A fused optimizer's kernels move only what they
must and count as memory-roof.

What helps:
fused-optimizer (fused=True on torch.optim's Adam, AdamW, SGD, Adagrad). torch-compile of the optimizer's
step does the same for others. A larger batch makes it a smaller share of the step.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.device_kind import pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.attribute.job import HAVE_FUSED
from findwall.model.diagnosis import Evidence
from findwall.structure.steps import optimizers

CAUSE = "unfused-optimizer"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    name = optimizer_name(facts)
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    who = f"{name}'s update" if name else "the optimizer's update"
    fact = (
        f"{opening(facts, CAUSE)} goes to {who} in {calls:,.0f} {pieces(facts)}, each of which moves the "
        "parameters through memory again"
    )
    return told(facts, CAUSE, fact, _advice(name))


def optimizer_name(facts: Facts) -> str | None:
    """The optimizer's class, where a range names it."""
    return next(iter(optimizers(facts.timeline)), None)


def _advice(name: str | None) -> str:
    if name is None or name in HAVE_FUSED:
        return f"pass fused=True to {name or 'it'}"
    return (
        f"compile its step (torch.compile), or use an optimizer that has fused=True ({', '.join(HAVE_FUSED)})"
    )
