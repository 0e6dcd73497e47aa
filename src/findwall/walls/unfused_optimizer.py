"""The optimizer updates parameters in many passes over memory instead of one.

What it finds:
Kernels launched inside an optimizer's step, or of foreach arithmetic, that are not a fused optimizer's; and
the passes of an update that the job writes itself.

Why it costs:
An update reads parameter, gradient and state and writes parameter and state. Done op by op (or list by
list: foreach) each intermediate is written and read again: AdamW moves about three times the bytes of
one fused kernel.

How it is told apart:
By the range `Optimizer.step#…` or the kernel's class. An update without an optimizer object is told by when
it runs and on what: between a backward pass and the next forward pass, changing tensors in place that have
the shapes of the gradients. A fused optimizer's kernels move only what they must and count as memory-roof.

What helps:
fused-optimizer (fused=True on torch.optim's Adam, AdamW, SGD, Adagrad). torch-compile of the optimizer's
step does the same for others, and of the function that updates one parameter for an own update;
foreach-optimizer (lists of tensors, torch._foreach_*) saves launches. A larger batch makes it a smaller share
of the step.
"""

from __future__ import annotations

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.device_kind import pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.attribute.job import HAVE_FUSED, updates_itself
from findwall.model.diagnosis import Evidence
from findwall.structure.steps import optimizers

CAUSE = "unfused-optimizer"
_NAMELESS = "the optimizer's update"
_OWN = (
    "compile the function that updates a parameter (torch.compile), write it with torch._foreach_* ops on "
    "lists, or use a library's fused kernel"
)


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    name = optimizer_name(facts)
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    own = updates_itself(facts)
    who = f"{name}'s update" if name else "the job's own update of its parameters" if own else _NAMELESS
    fact = (
        f"{opening(facts, CAUSE)} goes to {who} in {calls:,.0f} {pieces(facts)}, each of which moves the "
        "parameters through memory again"
    )
    return told(facts, CAUSE, fact, _OWN if own else _advice(name))


def optimizer_name(facts: Facts) -> str | None:
    """The optimizer's class, where a range names it."""
    return next(iter(optimizers(facts.timeline)), None)


def _advice(name: str | None) -> str:
    if name is None or name in HAVE_FUSED:
        return f"pass fused=True to {name or 'it'}"
    return (
        f"compile its step (torch.compile), or use an optimizer that has fused=True ({', '.join(HAVE_FUSED)})"
    )
