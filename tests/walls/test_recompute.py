"""Forward ops that the autograd engine launches."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.walls import recompute
from sketch import KERNELS, Drawn, facts_of, sketch

STEPS = "|           |           |           "
CPU = """
 AAAAAAAAA   AAAAAAAAA   AAAAAAAAA
 NNNNNNNNN   NNNNNNNNN   NNNNNNNNN
 oo          oo          oo
"""
GPU = "  mmmmMMMM    mmmmMMMM    mmmmMMMM"
NODE = {"N": (Kind.OP, "CheckpointFunctionBackward")}
MATMUL = {"m": replace(KERNELS["m"], sequence=5)}  # an op that records itself for a later backward


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=NODE, kernels=MATMUL))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=NODE))


def cannot_tell() -> Facts:
    """Without host events nobody knows on whose behalf a kernel ran."""
    blank = {"m": Drawn(KERNELS["m"].kernel, "aten::mm")}
    return facts_of(sketch(gpu=GPU, steps=STEPS, kernels=blank))


def test_all_of_it_comes_back() -> None:
    facts = fires()
    assert facts.recoverable_ms("recompute") == facts.spent_ms("recompute")
    assert "checkpointed" in recompute.sentence(facts)
