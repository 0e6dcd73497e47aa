"""Let the library try its kernels and keep the fastest for these shapes.

What it does:
Libraries choose matmul kernels by rules of thumb. `torch.compile(model, mode="max-autotune")` times the
candidates for each shape once, with generated kernels among them.

When it does not help:
Kernels already run near the ceiling, or shapes change all the time, so that every step is tuned
again. Convolutions have a switch of their own: cudnn-benchmark. What sorts, selects or measures distances
(median, top-k, cdist), and attention, is called from the library as it is.

Risk:
Runs are not bit-identical from start to start, as another kernel may win. Tuning takes seconds to
minutes.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from findwall.facts.host_cores import on_the_same_cores
from findwall.facts.op_shapes import slow_convolutions
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    no_use,
    not_here,
    of_class,
    on_cores,
    time_of,
    to_floor,
)
from findwall.fixes.compiler.compile_patch import compile_named
from findwall.fixes.compiler.compiling import TWICE, compile_models
from findwall.work.fusion import SCAN, WRITTEN_ANEW, on_complex
from findwall.work.work_facts import ops_named

MOVES = ("slow-kernels",)
MODE = "max-autotune-no-cudagraphs"  # graphs are another fix


def use(facts: Facts) -> Outcome:
    slow = facts.atoms_of("slow-kernels")
    if time_of(facts, slow) <= 0:
        return not_here(facts, "autotune-kernels/near-ceiling")
    # A CPU's convolutions are called from the library as they are.
    classes = [one for one in WRITTEN_ANEW if one != "conv"] if on_cores(facts) else WRITTEN_ANEW
    ops = facts.kernels.op[facts.atoms.index]
    as_they_are = ops_named(facts.timeline, ops, SCAN) | on_complex(facts.timeline, ops)
    slow = slow[(of_class(facts, *classes) & ~as_they_are)[slow]]
    if time_of(facts, slow) <= 0:
        return no_use("autotune-kernels/no-others")
    if time_of(facts, slow := np.setdiff1d(slow, slow_convolutions(facts))) <= 0:
        return no_use("autotune-kernels/convolutions")
    return Use(
        Claim("autotune-kernels/time-them", {"slow_ms": time_of(facts, slow)}),
        on_the_same_cores(facts, slow) if on_cores(facts) else to_floor(facts, slow),
    )


FIX = Fix(
    MOVES,
    "changes-numerics",
    use,
    (TWICE,),
    apply=partial(compile_models, mode=MODE),
    patch=partial(
        compile_named,
        how=f'mode="{MODE}"',
        trainers={"transformers": {"torch_compile": "True", "torch_compile_mode": f'"{MODE}"'}},
    ),
    plainer=("torch-compile", "compile-blocks"),
    compiles=True,
)
