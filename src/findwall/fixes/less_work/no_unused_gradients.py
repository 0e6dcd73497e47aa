"""Leave gradients out that no optimizer uses: `.detach()`, `requires_grad_(False)` or `torch.no_grad()`.

What it does:
A teacher, a frozen backbone or a fixed encoder whose parameters still require gradients is kept in the graph:
autograd saves its activations, works its whole backward pass out, and adds the result to gradients that
nobody reads or takes away. With `module.requires_grad_(False)`, or called under `torch.no_grad()`, only its
forward pass is left. A critic's loss that is given what a generator made works the generator's backward pass
out as well, and throws it away before the generator's own: `critic(made.detach())` stops there.

When it does not help:
Where something that is trained comes before those layers, its gradient has to pass through them: then only
the gradients of their own weights are saved.

Risk:
None for the losses, if no optimizer steps these parameters. An optimizer that steps only every n steps is not
seen in the few that are traced: look for one. Code that looks at their gradients (a norm over
all parameters that is logged) finds none.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import without_needless
from findwall.model.catalogue import UNNEEDED

SAID = "no-unused-gradients/found", "no-unused-gradients/none"


def use(facts: Facts) -> Outcome:
    return without_needless(facts, "gradients", SAID, "stepped-by-no-optimizer")


FIX = Fix((UNNEEDED,), "needs-review", use, removes=True)
