"""Let the library try its kernels and keep the fastest for these shapes.

What it does:
Libraries choose matmul and convolution kernels by rules of thumb. `torch.backends.cudnn.benchmark =
True` times the candidates for each convolution shape once; `torch.compile(model,
mode="max-autotune")` does it for matmuls, with generated kernels among the candidates.

When it does not help:
Kernels already run near the ceiling, or shapes change all the time, so that every step is tuned
again.

Risk:
Runs are not bit-identical from start to start, as another kernel may win. Tuning takes seconds to
minutes.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_kind import on_cores
from findwall.attribute.device_time import of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.idle_cores import apart_from_idle_cores
from findwall.fixes import Fix, NoUse, Outcome, use

MOVES = ("slow-kernels",)


def advise(facts: Facts) -> Outcome:
    slow = facts.atoms_of("slow-kernels")
    if time_of(facts, slow) <= 0:
        return NoUse("the matmuls and convolutions run near the ceiling")
    conv = slow[of_class(facts, "conv")[slow]]
    ways = []
    if len(conv) and not on_cores(facts):
        ways.append("`torch.backends.cudnn.benchmark = True`")
    if not ways or len(np.setdiff1d(slow, conv)):
        ways.append('`torch.compile(model, mode="max-autotune")`')
    return use(
        f"Let torch time the kernels it has for these shapes and keep the fastest ({' and '.join(ways)}): "
        f"{a_step(time_of(facts, slow))} runs well under the ceiling.",
        apart_from_idle_cores(facts, *MOVES),
    )


FIX = Fix(MOVES, "changes-numerics", advise)
