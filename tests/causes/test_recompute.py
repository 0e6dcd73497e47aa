"""Forward ops that the autograd engine launches."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.causes.compute import recompute
from findwall.facts.best_changes import best_step, ideal
from findwall.facts.facts import Facts
from findwall.model.events import Kind
from sketch import KERNELS, Drawn, facts_of, sketch
from speaking import in_words

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


def test_a_graph_for_second_derivatives_repeats_nothing() -> None:
    """Every node records itself, and nothing in the trace is called a checkpoint."""
    host = {"N": (Kind.OP, "MmBackward0")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=host, kernels=MATMUL))
    assert facts.spent_ms("recompute") == 0


def test_all_of_it_comes_back() -> None:
    facts = fires()
    assert facts.recoverable_ms("recompute") == facts.spent_ms("recompute")
    assert "checkpointed" in in_words(recompute.CAUSE, facts)


def test_memory_that_is_set_for_repeated_work_comes_back_too() -> None:
    """A product that is split zeroes memory first: without the product it would not."""
    zeroed = {"e": Drawn("Memset (Device)", "aten::mm", kind=Kind.MEMSET, nbytes=4096, sequence=5)}
    cpu, gpu = CPU.replace("oo ", "ooo"), GPU.replace("mmmm", "emmm")
    facts = facts_of(sketch(cpu=cpu, gpu=gpu, steps=STEPS, host=NODE, kernels=MATMUL | zeroed))
    assert facts.spent_ms("recompute") == pytest.approx(fires().spent_ms("recompute"), rel=0.01)


# The host issues slower than the device works: first a forward op, then the same op again under the engine,
# then a gradient. It keeps the device waiting for each of them.
LATE_CPU = """
      AAAAAAAAAA        AAAAAAAAAA
      NNNNNNNNNN        NNNNNNNNNN
 o    o    o       o    o    o
"""
LATE_GPU = "  k    m    k       k    m    k"
LATE_STEPS = "|                 |             "
ENTERED = "E                 E"


def late(entered: str = "", again: bool = True) -> Facts:
    host = NODE | {"E": (Kind.OP, "_NoopSaveInputs")}
    kernels = MATMUL if again else {}
    cpu = f"{entered}{LATE_CPU}"
    timeline = sketch(cpu=cpu, gpu=LATE_GPU, steps=LATE_STEPS, host=host, kernels=kernels, us=30)
    return facts_of(timeline, step_ms=0.45)


def test_waiting_for_launches_that_repeat_work_is_no_launch_bound() -> None:
    """The same step, told apart only by whether the op under the engine is a forward one."""
    plain, facts = late(again=False), late()
    assert plain.reading.likely.idle["recompute"] == 0
    idle, before = facts.reading.likely.idle, plain.reading.likely.idle
    assert idle["recompute"] > 0
    assert idle["recompute"] + idle["launch-bound"] == pytest.approx(before["launch-bound"])
    assert facts.spent().total == pytest.approx(facts.step)


def test_entering_a_checkpoint_makes_the_launch_behind_it_late() -> None:
    """torch runs an op of its own as a checkpoint is entered; the kernel after it waits for all of that."""
    entered = late(ENTERED)
    assert entered.reading.likely.idle["recompute"] > late().reading.likely.idle["recompute"]
    least = [best_step(facts, ideal(facts, "recompute"), ("recompute",)) for facts in (entered, late())]
    assert least[0] < least[1]
    # Without anything that is repeated the op means nothing.
    assert late(ENTERED, again=False).reading.likely.idle["recompute"] == 0


def test_a_host_that_issues_repeated_work_does_not_hide_it() -> None:
    """Kernels that are not there need no launches: what the step saves is both."""
    facts = late()
    assert facts.saved(("recompute",)) >= 0.9 * facts.recoverable()["recompute"]
