"""Let fp32 matmuls and convolutions run on the tensor cores, in TF32.

What it does:
TF32 keeps fp32's range and rounds the inputs of each product to 10 bits of mantissa; sums stay in
fp32. Nothing else changes: weights, activations and the optimizer remain fp32. One line at the
start of the program:

    torch.set_float32_matmul_precision("high")

Convolutions have a switch of their own, `torch.backends.cudnn.allow_tf32`, which is on by default.

When it does not help:
The matmuls already run in 16 bits, or the step waits for something other than matmuls. GPUs before
Ampere have no TF32.

Risk:
Products lose about 13 bits of mantissa. Training rarely notices; solvers, losses with large
cancellations and tests against fp32 references may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.apply.roots import roots
from findwall.facts.best_changes import at_math
from findwall.facts.likely_times import in_format, layout_with, narrows
from findwall.facts.number_formats import math_times
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Made,
    NoUse,
    Outcome,
    Use,
    no_use,
    of_class,
    on_cores,
    time_of,
    unclear_if,
    unless,
)
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.replay.change import Change
from findwall.work.work_facts import WorkFacts, fast_format


def use(facts: Facts) -> Outcome:
    if "tf32" not in facts.ceilings.flops:
        return NoUse(Claim("tf32/has-none", names={"device": facts.ceilings.device}))
    if fast_format(facts.ceilings) != "tf32":
        return NoUse(Claim("tf32/no-faster", names={"device": facts.ceilings.device}))
    slow = facts.atoms_of("fast-path-off")
    slow = slow[facts.kernels.math_index[facts.atoms.index[slow]] == MATH_TYPES.index("fp32")]
    if time_of(facts, slow) <= 0:
        return _reason(math_times(facts))
    conv = slow[of_class(facts, "conv")[slow]]
    what = "convolutions" if len(conv) == len(slow) else "both" if len(conv) else "matmuls"
    return Use(
        Claim(f"tf32/{what}", {"moved_ms": time_of(facts, slow)}),
        at_math(facts, _multiplies(facts), "tf32"),
        likely=lambda made: _likely(facts, made),
    )


def _multiplies(facts: WorkFacts) -> I64:
    """Everything that multiplies fp32 numbers, whatever else is said of it."""
    fp32 = facts.kernels.math_index[facts.atoms.index] == MATH_TYPES.index("fp32")
    found: I64 = np.flatnonzero(fp32 & of_class(facts, *MATRIX_CLASSES))
    return found


def _likely(facts: WorkFacts, made: Made) -> Change:
    """Products as fast as they run in TF32; under autocast there are none left. Fused attention kernels have
    no switch for it."""
    if narrows(made):
        return Change()
    atoms = _multiplies(facts)
    atoms = atoms[~of_class(facts, "attention")[atoms]]
    return in_format(facts, atoms, "tf32", layout=layout_with(facts, made))


def _reason(times: dict[str, float]) -> NoUse:
    if not times:
        return no_use("tf32/no-products")
    first = next(iter(times))
    if first in (*SIXTEEN_BITS, "fp8"):
        return no_use("matmuls/already-in", format=first)
    known = {"tf32": "tf32/already", "fp32": "tf32/too-small"}
    return no_use(known[first]) if first in known else no_use("tf32/other-format", format=first)


def apply(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here, and only GPUs have TF32")
        return
    take_back = _turn_back(torch)
    _turn_on(torch)
    REGISTRY.hold("tf32", "torch.set_float32_matmul_precision", take_back, past_end=APPLIED)
    effect.at("script")

    def again(*_: Any) -> None:
        """A job that turned it off did so before its model is called."""
        if not _is_on(torch):
            effect.at("undone")
            _turn_on(torch)

    roots(torch).tell(again)
    effect.at_end(lambda: _still_on(torch, effect))


ON = "TF32 is on for matmuls and convolutions at the end"


def shows(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here, and only GPUs have TF32")
        return
    effect.missed("TF32 is off at the end")
    effect.at_end(lambda: ON if _is_on(torch) else "")


def _turn_back(torch: Any) -> Callable[[], None]:
    """To what is set now."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    def take_back() -> None:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions

    return take_back


def _turn_on(torch: Any) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def _is_on(torch: Any) -> bool:
    """By the newer switches where torch has them: once a job has set those, reading the old ones raises."""
    parts = (torch.backends.cuda.matmul, torch.backends.cudnn)
    new = (
        getattr(parts[0], "fp32_precision", None),
        getattr(getattr(parts[1], "conv", None), "fp32_precision", None),
    )
    if None in new:
        return all(one.allow_tf32 for one in parts)
    return new == ("tf32", "tf32")


def _still_on(torch: Any, effect: Effect) -> str:
    """The job may have set it back."""
    if _is_on(torch):
        return ON
    effect.missed("the job turns TF32 off itself")
    return ""


def patch(editor: Editor) -> None:
    if editor.some("undone"):
        raise NoPatch("the job turns TF32 off itself: take that line out")
    place = editor.places("script")[0]
    editor.at_start(place, '{torch}.set_float32_matmul_precision("high")')
    editor.at_start(place, "{torch}.backends.cudnn.allow_tf32 = True")


FIX = Fix(
    ("fast-path-off",),
    "changes-numerics",
    use,
    (
        unless("tf32/on-cores", on_cores, obvious=True),
        unclear_if("tf32/unknown-device", lambda facts: not facts.ceilings.flops),
    ),
    tried=8,
    apply=apply,
    live=apply,
    shows=shows,
    patch=patch,
)
