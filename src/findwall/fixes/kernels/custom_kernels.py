"""Write or find a kernel for the one op that takes the time.

What it does:
Where neither a library nor the compiler has a good kernel for an op and its shapes, one written for
it (Triton, CUTLASS, CUDA) can reach the ceiling: gathers fused with what follows, a loss that never
writes its logits, matmuls with unusual epilogues.

When it does not help:
The time is spread over many ops, or the kernels already run at their floor.

Risk:
Code to maintain, with a backward pass and tests of its own.
"""

from __future__ import annotations

from findwall.facts.cause_kernels import Carrier, atoms_of_carrier, carriers, name_carrier
from findwall.facts.host_cores import cores_in_use
from findwall.fixes import (
    CannotTell,
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    no_use,
    on_cores,
    step_ms,
    to_floor,
    without_floors,
)
from findwall.model.catalogue import WORTH_IT

MOVES = ("slow-kernels", "gather-scatter", "at-the-roof", "memory-roof")


def use(facts: Facts) -> Outcome:
    longest = [(cause, one) for cause in MOVES for one in carriers(facts, cause, 1)]
    found = [(cause, one) for cause, one in longest if one.floor_ms is not None]
    if not found:
        return CannotTell(Claim("custom-kernels/no-floor", parts=[without_floors(facts)]))
    cause, worst = max(found, key=lambda pair: _left(pair[1]))
    if _left(worst) < WORTH_IT * step_ms(facts):
        return no_use("custom-kernels/near-floor")
    names = {"kernel": name_carrier(facts, worst)}
    figures = {"spent_ms": worst.ms, "reached_share": worst.reached, "threads": None, "cores": None}
    if not on_cores(facts):
        return Use(Claim("custom-kernels/write", figures, names))
    # The op that is named, and no other; first it gets the cores that it has not, if there are such.
    best = to_floor(facts, atoms_of_carrier(facts, cause, worst))
    cores = cores_in_use(facts)
    if cores is None or cores.idle <= 0:
        return Use(Claim("custom-kernels/write", figures, names), best, (cause,))
    figures |= {"threads": cores.threads, "cores": cores.cores}
    return Use(Claim("custom-kernels/write", figures, names), best, (cause,), after_others=True)


def _left(one: Carrier) -> float:
    return one.ms - (one.floor_ms or 0.0)


FIX = Fix(MOVES, "needs-review", use, of_anything=True)
