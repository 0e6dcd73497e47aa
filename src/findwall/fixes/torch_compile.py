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

from typing import Any

import numpy as np

from findwall.attribute.carriers import ops_named
from findwall.attribute.compiled import (
    COMPILED_AWAY,
    FUSES,
    compiled_at_best,
    compiled_kernels,
    model_rows,
)
from findwall.attribute.copies import moves_on
from findwall.attribute.device_kind import on_cores
from findwall.attribute.device_time import of_class, rows_of, time_of, too_small_share
from findwall.attribute.facts import Facts
from findwall.attribute.figures import NO_MODEL, a_step, blind_ms, gain_ms, listed, missing, step_ms
from findwall.attribute.job import compiled_share, graph_share, is_compiled, is_training
from findwall.attribute.likely import calls_a_step, host_ns, issuing_ns
from findwall.attribute.loss import behind_the_products
from findwall.attribute.waits import launch_idle
from findwall.attribute.whatif import to_floor
from findwall.fixes import CannotTell, Fix, Made, NoUse, Outcome, use
from findwall.measure.applying import Effect
from findwall.measure.compiling import compile_models
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, MENTION_SHARE, WORTH_IT
from findwall.model.intervals import I64
from findwall.patches.compiled import compile_named
from findwall.patches.editor import Editor
from findwall.replay.change import Change, Issue
from findwall.units import format_share

MOVES = ("unfused-pointwise", "launch-bound", *(one for one in COMPILED_AWAY if one != "unfused-pointwise"))
# What the compiler makes of each cause.
DOES = {
    "unfused-pointwise": "fuses pointwise chains into one kernel each",
    "launch-bound": "issues fewer launches",
    "unfused-attention": "recognises attention",
    "dtype-casts": "folds casts into their neighbours",
    "layout-copies": "folds layout copies into what reads them",
    "misaligned-shapes": "pads odd matmuls",
    "gather-scatter": "fetches rows and adds them up in kernels of its own",
}
# Of the device time in generated kernels: less is not told. Chosen by hand, not calibrated.
GENERATED_SHARE = 0.02


def advise(facts: Facts) -> Outcome:
    share = compiled_share(facts)
    if is_compiled(facts):
        generated = (
            f" ({format_share(share)} of device time in generated kernels)" if share > GENERATED_SHARE else ""
        )
        return NoUse(f"the model is already compiled{generated}")
    if gain_ms(facts, *MOVES) <= 0:
        if blind_ms(facts, *MOVES) > 0:
            return CannotTell(f"what fusing would save is not known: {missing(facts) or NO_MODEL}")
        return NoUse("there is nothing to fuse, and the device never waits for launches")
    if gain_ms(facts, "launch-bound") > gain_ms(facts, *FUSES):
        return _for_launches(facts)
    worth = [cause for cause in DOES if (facts.recoverable_ms(cause) or 0.0) > MENTION_SHARE * step_ms(facts)]
    if "layout-copies" in worth and moves_on(facts):  # what is read in the next step must be written in this
        worth.remove("layout-copies")
    chains = ops_named(facts, "unfused-pointwise") if "unfused-pointwise" in worth else ""
    named = f" (mostly {chains})" if chains else ""
    done = listed([DOES[cause] + (named if cause == "unfused-pointwise" else "") for cause in worth])
    way = (
        "Run `torch.compile(model)` before the capture"
        if graph_share(facts) > MAJORITY_SHARE
        else "Use `model = torch.compile(model)`"
    )
    return use(
        f"{way}: it {done or DOES['unfused-pointwise']}.{_and_the_loss(facts)}",
        compiled_at_best(facts),
        likely=lambda made: _likely(facts, made),
    )


def _and_the_loss(facts: Facts) -> str:
    """A sentence more, where the loss has much of what is fused: it is not always the model's own."""
    fused = np.concatenate([facts.atoms.of(cause) for cause in FUSES])
    spent = time_of(facts, np.intersect1d(fused, behind_the_products(facts)))
    if spent < WORTH_IT * step_ms(facts):
        return ""
    return (
        f" {a_step(spent)} of that lies behind the last product, as losses do: compile that function too, if "
        "it is not part of the model."
    )


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
            return NoUse("a CUDA graph already issues the kernels")
        merged = compiled_at_best(facts) + to_floor(facts, facts.atoms.of("launch-bound"))
        share = format_share(small)
        return use(
            f"Run `torch.compile(model)` before the capture: small kernels take {share} of the step.", merged
        )
    waited = a_step(launch_idle(facts))
    if on_cores(facts):
        return use(
            f"Use `torch.compile(model)` for fewer and larger ops: {waited} passes between them today.",
            compiled_at_best(facts),
        )
    return use(
        f"Use `model = torch.compile(model)`: the device waits {waited} for launches, and generated "
        "code issues fewer.",
        compiled_at_best(facts),
        likely=lambda made: _likely(facts, made),
    )


def apply(torch: Any, effect: Effect) -> None:
    compile_models(torch, effect)


def patch(editor: Editor) -> None:
    compile_named(editor, "", {"transformers": {"torch_compile": "True"}})


FIX = Fix(MOVES, "changes-numerics", advise, tried=1, apply=apply, patch=patch, instead="compile-blocks")
