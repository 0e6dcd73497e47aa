"""Compile the model and replay its generated kernels from CUDA graphs.

What it does:
`torch.compile(model, mode="reduce-overhead")` generates fused kernels as the default mode does, records them
as CUDA graphs on the first calls, and replays those. The host then issues one graph a call instead of one
launch a kernel.

When it does not help:
The device is busy anyway: then the default mode gives the same. Inputs that change shape record a graph for
each shape; graph breaks, CPU ops and mutated inputs keep a region out of graphs (`TORCH_LOGS=perf_hints` says
so). Each call still checks its guards and copies its inputs into the graph's memory, so a model called many
times in a step gains less than from a graph captured by hand.

Risk:
Results live in the graph's memory until the next call: clone what must last. The graphs hold their memory.
Fused kernels round less often, so results differ in the last bits. The first steps take minutes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.facts.gains import launch_idle
from findwall.facts.host_loops import mostly_in_loops
from findwall.facts.likely_times import calls_a_step, host_ns
from findwall.facts.rewritten_step import COMPILED_AWAY, compiled_at_best, compiled_kernels, model_rows
from findwall.fixes import Claim, Facts, Fix, Made, Outcome, Use, free_launches, is_training
from findwall.fixes.compiler.compile_patch import compile_named
from findwall.fixes.compiler.compiling import TWICE, compile_models
from findwall.fixes.refusals import ON_CORES, REPLAYED
from findwall.replay.change import Change, Issue, Ready

NEVER_MS = 1e-6  # a nanosecond per step: a sum that should be nothing
BETWEEN_KERNELS_NS = 600.0  # of a graph, on an H200


def use(facts: Facts) -> Outcome:
    waited = launch_idle(facts)
    spent = facts.spent_ms("unfused-pointwise")
    never = waited <= NEVER_MS
    figures = {"waits_ms": waited, "pointwise_ms": spent if spent > waited else None}
    return Use(
        Claim("reduce-overhead/as-default") if never else Claim("reduce-overhead/record", figures),
        _best(facts),
        after_others=never or mostly_in_loops(facts),  # a graph would hold every round of a loop
        likely=lambda made: _likely(facts, made),
    )


def _best(facts: Facts) -> Change:
    """All that a compiler could do, and nothing to launch, one kernel right after the other."""
    return compiled_at_best(facts) + free_launches(facts) + Change((Ready(facts.queue.row, turn=0.0),))


def _likely(facts: Facts, made: Made) -> Change:
    """Generated kernels one right after the other; the host pays for each call, not for each kernel, and for
    none where a graph of the whole step holds them."""
    device, gone = compiled_kernels(facts, made)
    rows = np.setdiff1d(model_rows(facts), gone)
    if "cuda-graphs" in made:
        return device
    call = host_ns(facts, "graph_training_call" if is_training(facts) else "graph_call")
    calls = calls_a_step(facts) * facts.steps.count
    each = np.array(call * calls / max(len(rows), 1))
    return device + Change((Issue(rows, each), Ready(rows, turn=BETWEEN_KERNELS_NS)))


def apply(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here to record a graph on")
        return
    compile_models(torch, effect, mode="reduce-overhead")


FIX = Fix(
    ("launch-bound", *COMPILED_AWAY),
    "changes-numerics",
    use,
    (
        ON_CORES,
        REPLAYED,
        TWICE,
    ),
    tried=11,
    apply=apply,
    patch=partial(
        compile_named,
        how='mode="reduce-overhead"',
        trainers={"transformers": {"torch_compile": "True", "torch_compile_mode": '"reduce-overhead"'}},
    ),
    plainer=("torch-compile", "autotune-kernels", "compile-blocks", "builtin-ops", "fused-loss"),
    compiles=True,
)
