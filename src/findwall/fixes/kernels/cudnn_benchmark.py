"""Let cuDNN time its convolutions and keep the fastest for each shape: `cudnn.benchmark`.

What it does:
cuDNN has several algorithms for a convolution and chooses by rules of thumb. With

    torch.backends.cudnn.benchmark = True

it runs all of them once for each new shape and remembers the fastest. On AMD's GPUs the same switch makes
MIOpen search.

When it does not help:
Convolutions already run near the ceiling. Shapes change all the time (detection, pyramids, a last short
batch, texts): then every new one is timed again in the middle of training, which costs more than it gives. It
does not change the layout: for a ResNet and its kin bf16 with channels-last comes first, then torch.compile;
this switch is worth a line beside them.

Risk:
Runs are not bit-identical from start to start, as another algorithm may win. The fastest one may take more
memory for its workspace. The first steps are slow.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.apply.roots import roots
from findwall.facts.op_shapes import shapes_change, slow_convolutions, under_convolution
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    matching,
    no_use,
    not_here,
    of_class,
    rows_of,
    time_of,
    to_floor,
)
from findwall.fixes.refusals import ON_CORES
from findwall.model.catalogue import NEAR
from findwall.model.intervals import F64, I64
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.work.work_facts import WorkFacts

_NOT_CUDNN = re.compile("conv_depthwise")  # torch's own kernels, which it has one of


def use(facts: Facts) -> Outcome:
    slow = _slow(facts)
    if time_of(facts, slow) <= 0:
        if not (of_class(facts, "conv") | under_convolution(facts)).any():
            return no_use("cudnn-benchmark/none")
        return not_here(facts, "cudnn-benchmark/near-ceiling")
    changing = shapes_change(facts, slow)
    if changing:
        return no_use("cudnn-benchmark/shapes-change")
    if changing is None:
        return cannot_tell("cudnn-benchmark/no-shapes")
    return Use(
        Claim("cudnn-benchmark/switch-on", {"slow_ms": time_of(facts, slow)}),
        to_floor(facts, slow, _own_floor(facts, slow)),
    )


def _slow(facts: Facts) -> I64:
    """Convolutions well under the ceiling of the number format they run in, also where that is fp32 and the
    tensor cores would do better."""
    wide = facts.atoms_of("fast-path-off")
    wide = wide[(of_class(facts, "conv") | under_convolution(facts))[wide]]
    far = _own_floor(facts, wide) < NEAR * facts.atoms.own[wide]
    found = np.union1d(slow_convolutions(facts), wide[far])
    return found[~matching(facts, rows_of(facts, found), _NOT_CUDNN)]


def _own_floor(facts: WorkFacts, atoms: I64) -> F64:
    """In the format they have: another one is another fix."""
    index = facts.atoms.index[atoms]
    share = facts.atoms.own[atoms] / np.maximum(facts.kernels.duration[index], 1)
    found: F64 = facts.kernels.floor[index] * share
    return found


def apply(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here, and only convolutions of GPUs are timed")
        return
    if torch.backends.cudnn.benchmark:
        effect.cannot("cudnn.benchmark is on already")
        return
    torch.backends.cudnn.benchmark = True
    what = "torch.backends.cudnn.benchmark"
    REGISTRY.hold("cudnn-benchmark", what, functools.partial(_turn_off, torch), past_end=APPLIED)
    effect.at("script")

    def again(*_: Any) -> None:
        """A job that turned it off did so before its model is called."""
        if not torch.backends.cudnn.benchmark:
            effect.at("undone")
            torch.backends.cudnn.benchmark = True

    roots(torch).tell(again)
    effect.at_end(lambda: _still_on(torch, effect))


def _turn_off(torch: Any) -> None:
    torch.backends.cudnn.benchmark = False


ON = "cudnn.benchmark is on at the end"


def shows(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here, and only convolutions of GPUs are timed")
        return
    effect.missed("cudnn.benchmark is off at the end, or algorithms are asked to be deterministic")
    how = torch.backends.cudnn
    effect.at_end(lambda: ON if how.benchmark and not how.deterministic else "")


def _still_on(torch: Any, effect: Effect) -> str:
    """The job may have set it back, or ask for results that are the same in every run."""
    if torch.backends.cudnn.deterministic:
        effect.missed("the job asks for deterministic algorithms, which cuDNN does not choose by time")
        return ""
    if torch.backends.cudnn.benchmark:
        return ON
    effect.missed("the job turns cudnn.benchmark off itself")
    return ""


def patch(editor: Editor) -> None:
    if editor.some("undone"):
        raise NoPatch("the job turns cudnn.benchmark off itself: set it to True in that line")
    editor.at_start(editor.places("script")[0], "{torch}.backends.cudnn.benchmark = True")


FIX = Fix(
    ("slow-kernels", "fast-path-off"),
    "changes-numerics",
    use,
    (ON_CORES,),
    apply=apply,
    live=apply,
    shows=shows,
    patch=patch,
    of_anything=True,
)
