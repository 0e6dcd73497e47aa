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
foreach-optimizer (lists of tensors, torch._foreach_*) saves launches. Where most of it is an embedding table
of which a step looks up a few rows: sparse-embedding, which updates those rows alone. A larger batch makes it
a smaller share of the step.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Figures, Told, known
from findwall.facts.embedding_tables import tables_ms
from findwall.facts.step_traits import HAVE_FUSED, updates_itself
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.step.call_names import optimizers

NAME = "unfused-optimizer"


def says(facts: Facts) -> Told:
    optimizer = next(iter(optimizers(facts.timeline)), None)  # its class, where a range names it
    own = updates_itself(facts)
    figures: Figures = {"kernels": len(facts.atoms.of(NAME)) / facts.steps.count, "own": own}
    fact = Claim("unfused-optimizer/updates", figures, known(optimizer=optimizer))
    tables = tables_ms(facts)
    if tables > MAJORITY_SHARE * facts.spent_ms(NAME):
        return Told(fact, Claim("advise/sparse-embedding"), Claim("gain/alone", {"saves_ms": tables}))
    if own:
        return Told(fact, Claim("advise/torch-compile/own-update"))
    if optimizer is None or optimizer in HAVE_FUSED:
        return Told(fact, Claim("advise/fused-optimizer", names=known(optimizer=optimizer)))
    return Told(fact, Claim("advise/torch-compile/update"))


CAUSE = Cause(NAME, says)
