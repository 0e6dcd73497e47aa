"""Let torch.compile fuse chains of kernels and issue the step from generated code.

What it does:
`model = torch.compile(model)` traces the model and generates kernels: a chain of pointwise ops,
norms and casts becomes one kernel that reads once and writes once; attention written out is
recognised; matmuls with odd dimensions are padded; images are made channels-last for convolutions. The
dispatcher is left out, so the host issues a
step faster; with `mode="reduce-overhead"` launches are recorded as CUDA graphs besides.

When it does not help:
The step waits for the loader, a copy, a synchronisation or communication, or its matmuls are
already at the roof: then there is nothing to fuse. For small inference calls the guards that each
call checks can cost more than the dispatcher they replace; `mode="reduce-overhead"` or a CUDA graph
is the remedy there. Changing shapes make it compile again and again. Where it fails or takes too long on
the whole of a deep model, compile-blocks does it block by block.

Risk:
The first steps take minutes. Fused kernels round less often than the ops they replace, so results
differ in the last bits. Python that depends on values breaks the graph.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from findwall.facts.beside_the_model import behind_the_products
from findwall.facts.cause_kernels import moves_on, ops_named
from findwall.facts.facts import too_small_share
from findwall.facts.gains import blind_ms, launch_idle
from findwall.facts.likely_times import calls_a_step, host_ns, issuing_ns
from findwall.facts.rewritten_step import COMPILED_AWAY, FUSES, compiled_at_best, compiled_kernels, model_rows
from findwall.facts.step_traits import compiled_share, graph_share
from findwall.fixes import (
    CannotTell,
    Claim,
    Facts,
    Fix,
    Made,
    Outcome,
    Use,
    gain_ms,
    is_compiled,
    is_training,
    no_use,
    of_class,
    on_cores,
    rows_of,
    step_ms,
    time_of,
    to_floor,
    without_floors,
)
from findwall.fixes.compiler.compile_patch import compile_named
from findwall.fixes.compiler.compiling import TWICE, compile_live, compile_models, graphs_seen
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, MENTION_SHARE, WORTH_IT
from findwall.model.intervals import I64
from findwall.replay.change import Change, Issue

MOVES = ("unfused-pointwise", "launch-bound", *(one for one in COMPILED_AWAY if one != "unfused-pointwise"))
# Causes of which it is told what the compiler makes of them.
TOLD = (
    "unfused-pointwise",
    "launch-bound",
    "unfused-attention",
    "dtype-casts",
    "layout-copies",
    "misaligned-shapes",
    "gather-scatter",
)
# Of the device time in generated kernels: less is not told. Chosen by hand, not calibrated.
GENERATED_SHARE = 0.02


def use(facts: Facts) -> Outcome:
    share = compiled_share(facts)
    if is_compiled(facts):
        return no_use("torch-compile/already", generated_share=share if share > GENERATED_SHARE else None)
    if gain_ms(facts, *MOVES) <= 0:
        if blind_ms(facts, *MOVES) > 0:
            return CannotTell(Claim("torch-compile/unknown", parts=[without_floors(facts)]))
        return no_use("torch-compile/nothing")
    if gain_ms(facts, "launch-bound") > gain_ms(facts, *FUSES):
        return _for_launches(facts)
    worth = [cause for cause in TOLD if gain_ms(facts, cause) > MENTION_SHARE * step_ms(facts)]
    if "layout-copies" in worth and moves_on(facts):  # what is read in the next step must be written in this
        worth.remove("layout-copies")
    chains = ops_named(facts, "unfused-pointwise") if "unfused-pointwise" in worth else ""
    done = [Claim(f"torch-compile/does-{cause}") for cause in worth or TOLD[:1]]
    if chains:
        done[0] = Claim("torch-compile/does-named-pointwise", names={"ops": chains})
    figures = {"captured": graph_share(facts) > MAJORITY_SHARE, "loss_ms": _in_the_loss(facts)}
    return Use(
        Claim("torch-compile/compile", figures, parts=done),
        compiled_at_best(facts),
        likely=lambda made: _likely(facts, made),
    )


def _in_the_loss(facts: Facts) -> float | None:
    """Of what is fused the part in the loss, where that is much: it is not always the model's own."""
    fused = np.concatenate([facts.atoms.of(cause) for cause in FUSES])
    spent = time_of(facts, np.intersect1d(fused, behind_the_products(facts)))
    return spent if spent >= WORTH_IT * step_ms(facts) else None


def _likely(facts: Facts, made: Made) -> Change:
    """Generated kernels. The host pays for each launch what generated code pays, and for each call what its
    guards cost. A graph of all, asked for or there already, issues them in one; the mode that records
    graphs does all of this itself."""
    if "reduce-overhead" in made:
        return Change()
    device, gone = compiled_kernels(facts, made)
    if "cuda-graphs" in made or graph_share(facts) > MAJORITY_SHARE:
        return device
    return device + generated_launches(facts, np.setdiff1d(model_rows(facts), gone))


def generated_launches(facts: Facts, rows: I64) -> Change:
    """Rows that generated code issues, and what each call of it costs before the first of them. A product is
    the library's as before: its call costs the host no less."""
    training = is_training(facts)
    each = np.full(len(rows), host_ns(facts, "compiled_training" if training else "compiled"))
    products = np.isin(rows, rows_of(facts, np.flatnonzero(of_class(facts, *MATRIX_CLASSES))))
    each[products] = np.maximum(each[products], issuing_ns(facts, rows[products]))
    calls = calls_a_step(facts) * facts.steps.count
    each += host_ns(facts, "training_call" if training else "call") * calls / max(len(rows), 1)
    return Change((Issue(rows, each),))


def _for_launches(facts: Facts) -> Outcome:
    if graph_share(facts) > MAJORITY_SHARE:
        small = too_small_share(facts)
        if small < WORTH_IT:
            return no_use("torch-compile/graph-issues")
        merged = compiled_at_best(facts) + to_floor(facts, facts.atoms.of("launch-bound"))
        return Use(Claim("torch-compile/small-kernels", {"small_share": small}), merged)
    waited = {"waits_ms": launch_idle(facts)}
    if on_cores(facts):
        return Use(Claim("torch-compile/on-cores", waited), compiled_at_best(facts))
    return Use(
        Claim("torch-compile/launches", waited),
        compiled_at_best(facts),
        likely=lambda made: _likely(facts, made),
    )


FIX = Fix(
    MOVES,
    "changes-numerics",
    use,
    (TWICE,),
    tried=1,
    plainer=("builtin-ops", "fused-loss"),
    apply=compile_models,
    live=compile_live,
    compiles=True,
    shows=graphs_seen,
    patch=partial(compile_named, how="", trainers={"transformers": {"torch_compile": "True"}}),
    instead="compile-blocks",
)
