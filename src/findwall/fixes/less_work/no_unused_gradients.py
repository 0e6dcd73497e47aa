"""Leave gradients out that no optimizer uses: `requires_grad_(False)` or `torch.no_grad()`.

What it does:
A teacher, a frozen backbone or a fixed encoder whose parameters still require gradients is kept in the graph:
autograd saves its activations, works its whole backward pass out, and adds the result to gradients that
nobody reads or takes away. With `module.requires_grad_(False)`, or called under `torch.no_grad()`, only its
forward pass is left.

When it does not help:
Where something that is trained comes before those layers, its gradient has to pass through them: then only
the gradients of their own weights are saved.

Risk:
None for the losses, if no optimizer steps these parameters. An optimizer that steps only every n steps is not
seen in the few that are traced: look for one. Code that looks at their gradients (a norm over
all parameters that is logged) finds none.
"""

from __future__ import annotations

from findwall.facts.facts import time_of
from findwall.facts.unused_gradients import unused_gradients
from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gone, no_use
from findwall.fixes.less_work.removed_work import causes_of
from findwall.model.catalogue import ROOFS

# What such a pass is mostly made of.
MOVES = (
    *ROOFS,
    "slow-kernels",
    "fast-path-off",
    "misaligned-shapes",
    "unfused-pointwise",
    "unfused-attention",
    "layout-copies",
    "dtype-casts",
    "launch-bound",
)


def use(facts: Facts) -> Outcome:
    found = unused_gradients(facts)
    if found is None:
        return no_use("no-unused-gradients/none")
    line = line_of(facts, found.op)
    claim = Claim(
        "no-unused-gradients/frozen",
        {"spent_ms": time_of(facts, found.atoms), "parameters": found.parameters},
        places=[line] if line is not None else [],
    )
    change = gone(facts, found.atoms)
    return Use(
        claim,
        change,
        causes_of(facts, found.atoms, MOVES),
        likely=lambda made: change,
        uncurved=True,
        condition="stepped-by-no-optimizer",  # one that steps now and then is not seen in a few steps
    )


FIX = Fix(MOVES, "needs-review", use, removes=True)
