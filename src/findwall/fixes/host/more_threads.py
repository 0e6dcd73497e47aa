"""Let the ops of a CPU job use all the cores it has.

What it does:
`torch.set_num_threads(n)`, or OMP_NUM_THREADS=n before the start, with n the number of cores the job may
use: matmuls, convolutions and passes over large tensors are then divided among them.

When it does not help:
Other processes or loader workers need the same cores, or the ops are so small that dividing them costs more
than it saves.

Risk:
Sums are added up in another order, so that the last digits change. More threads than cores make everything
slower.
"""

from __future__ import annotations

from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.live_threads import hold_threads, usable_cores
from findwall.facts.host_cores import cores_in_use, on_all_cores
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, cannot_tell, no_use, on_cores, unless
from findwall.fixes.host.threads_patch import hold_in_script


def use(facts: Facts) -> Outcome:
    found = cores_in_use(facts)
    if found is None:
        return cannot_tell("more-threads/uncounted")
    if found.threads >= found.cores > found.used:
        return no_use("more-threads/may-already", threads=found.threads, cores=found.cores)
    if found.idle <= 0:
        return no_use("more-threads/none-idle", used_cores=found.used, cores=found.cores)
    return Use(
        Claim("more-threads/all-cores", {"cores": found.cores, "used_cores": found.used}),
        on_all_cores(facts, found),
        parameters={"threads": found.cores},
    )


def apply(torch: Any, effect: Effect) -> None:
    hold_threads(torch, effect, "more-threads", effect.number or usable_cores())


FIX = Fix(
    ("slow-kernels",),
    "changes-numerics",
    use,
    (unless("more-threads/on-gpu", lambda facts: not on_cores(facts), obvious=True),),
    apply=apply,
    live=apply,
    patch=hold_in_script,
)
