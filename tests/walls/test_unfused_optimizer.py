"""An optimizer in many passes."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.walls import unfused_optimizer
from sketch import Drawn, facts_of, sketch

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
    assert "Pass fused=True to AdamW" in unfused_optimizer.sentence(fires())


def test_one_without_a_fused_form_is_told_so() -> None:
    other = {"z": (Kind.ANNOTATION, "Optimizer.step#LAMB.step")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=other))
    assert "Compile its step" in unfused_optimizer.sentence(facts)
