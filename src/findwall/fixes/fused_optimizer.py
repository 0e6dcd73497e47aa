"""Step all parameters in one kernel: `fused=True`.

What it does:
An optimizer written as one op after the other reads and writes parameters, gradients and states
many times. The fused one reads and writes each once, in a few launches for all parameters together.

    torch.optim.AdamW(model.parameters(), lr=…, fused=True)

When it does not help:
The optimizer is fused already, or its step is short beside forward and backward (large batches, few
parameters). `foreach=True` saves launches but not traffic and can even be slower.

Risk:
Rounding differs in the last bits. Only Adam, AdamW, SGD and Adagrad have it in torch; others need a
library's kernel or a compiled step.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, cannot_tell, gain_ms, no_use, use
from findwall.fixes.job import idle_before, matching, of_class, optimizers, rows_of, time_of
from findwall.walls.evidence import listed

MOVES = ("unfused-optimizer", "launch-bound")
SAFETY = "changes-numerics"
POPULAR = True
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_FUSED_NAME = re.compile("fused", re.IGNORECASE)


def advise(facts: Facts) -> Advice:
    names = optimizers(facts)
    spent = facts.spent_ms("unfused-optimizer")
    if spent <= 0:
        return _why_not(facts, names)
    able = [name for name in names if name in FUSED]
    if names and not able:
        return use(
            f"{listed(names)} has no fused=True in torch: use a library's fused kernel, or step it inside "
            f"`torch.compile`. It takes {a_step(spent)} in separate kernels."
        )
    name = able[0] if able else "AdamW"
    waited = min(idle_before(facts, "launch-bound", "optimizer"), gain_ms(facts, "launch-bound"))
    return use(
        f"`torch.optim.{name}(…, fused=True)`: its step takes {a_step(spent)} in separate kernels.",
        gain_ms(facts, "unfused-optimizer") + waited,
    )


def _why_not(facts: Facts, names: list[str]) -> Advice:
    atoms = np.flatnonzero(of_class(facts, "optimizer"))
    mine = time_of(facts, atoms)
    if mine > 0 and matching(facts, rows_of(facts, atoms), _FUSED_NAME).any():
        return no_use(f"the optimizer is fused already ({a_step(mine)})")
    if not names and mine <= 0:
        return no_use("no optimizer steps in this trace")
    return cannot_tell("the kernels of the optimizer's step are not told apart in this trace")
