"""The host issues slower than the device runs."""

from __future__ import annotations

import msgspec

from findwall.causes.overhead import launch_bound
from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from sketch import KERNELS, facts_of, sketch
from speaking import in_words

STEPS = "|           |           |           "
GPU = "k.K.k.K.k.K.k.K.k.K.k.K.k.K.k.K.k.K."
TINY = {"k": KERNELS["k"].given([64, 64])}


def fires() -> Facts:
    """40 us an op: far more than a profiler costs."""
    return facts_of(
        sketch(cpu="o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.", gpu=GPU, steps=STEPS, kernels=TINY, us=20)
    )


def clear() -> Facts:
    """The host is a step ahead."""
    ahead = "oooo                               "
    return facts_of(sketch(cpu=ahead, gpu="mMmMmMmMmMmMmMmMmMmMmMmMmMmMmMmMmMmM", steps=STEPS))


def cannot_tell() -> Facts:
    """Gaps of a few microseconds beside slow kernels: the profiler's own cost decides which is larger."""
    cpu, gpu, steps = "o..." * 27, "mmm." * 27, ("|" + " " * 35) * 3
    slow = {"m": KERNELS["m"].given([4096, 1024], [1024, 512], dtype="c10::BFloat16")}
    return facts_of(sketch(cpu=cpu, gpu=gpu, steps=steps, kernels=slow, us=4))


def test_counts_what_is_launched() -> None:
    facts = fires()
    assert "issues 6 kernels one by one" in in_words(launch_bound.CAUSE, facts)
    assert "aten::mul" in [one.op for one in launch_bound.CAUSE.evidence(facts)]


def test_a_verdict_that_the_profiler_decides_is_refused() -> None:
    facts = cannot_tell()
    assert facts.reading.short.step < facts.reading.long.step
    assert decide(facts).why_not == "dilation"


def test_compiled_code_is_told_of_the_graphs_its_compiler_makes() -> None:
    assert "reduce-overhead" not in in_words(launch_bound.CAUSE, fires())
    written = {"k": msgspec.structs.replace(TINY["k"], kernel="triton_poi_fused_mul_0")}
    cpu = "o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o.o."
    facts = facts_of(sketch(cpu=cpu, gpu=GPU, steps=STEPS, kernels=written, us=20))
    assert 'ompile with mode="reduce-overhead"' in in_words(launch_bound.CAUSE, facts)
