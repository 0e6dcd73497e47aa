"""An optimizer in many passes."""

from __future__ import annotations

import pytest

from findwall.causes.bandwidth import unfused_optimizer
from findwall.facts.facts import Facts
from findwall.model.events import Kind
from sketch import BIG, Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|        |        |        "
CPU = """
zzzz     zzzz     zzzz
oooo     oooo     oooo
"""
GPU = "kkKKkkKK kkKKkkKK kkKKkkKK"
FUSED = Drawn(
    "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>",
    "aten::_fused_adamw_",
)


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"k": FUSED}))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def test_names_the_optimizer() -> None:
    assert "Pass fused=True to AdamW" in in_words(unfused_optimizer.CAUSE, fires())


def test_one_without_a_fused_form_is_told_so() -> None:
    other = {"z": (Kind.ANNOTATION, "Optimizer.step#LAMB.step")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=other))
    assert "Compile its step" in in_words(unfused_optimizer.CAUSE, facts)


def own(name: str) -> Facts:
    """An update that somebody wrote out, at the memory's full speed: an average kept, a root, a division."""
    ops = (("k", "lerp_", 2), ("l", "sqrt", 1), ("w", "add_", 1), ("x", "addcdiv_", 3))
    plain = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>>"
    written = {letter: Drawn(plain, f"aten::{op}").given(*[BIG] * tensors) for letter, op, tensors in ops}
    host = {"z": (Kind.ANNOTATION, f"Optimizer.step#{name}.step")}
    gpu = "klwx     klwx     klwx     "
    return facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS, kernels=written, host=host))


@pytest.mark.parametrize("name", ["PaperAdamW", "Nobodys"])
def test_passes_at_full_speed_are_unfused_whoever_wrote_them(name: str) -> None:
    facts = own(name)
    assert facts.spent_ms("memory-roof") == 0
    # Of 11 passes over the parameters: the seven that an Adam needs, or the five that every update does.
    kept = 7 / 11 if name == "PaperAdamW" else 5 / 11
    alone = facts.kernels.floor[facts.atoms.index[facts.atoms.of("unfused-optimizer")]].sum()
    floors = alone / 1e6 / facts.steps.count
    recoverable = facts.spent_ms("unfused-optimizer") - kept * floors
    assert facts.recoverable_ms("unfused-optimizer") == pytest.approx(recoverable)
