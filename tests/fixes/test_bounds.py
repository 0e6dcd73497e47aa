"""What a fix does at best: never above the step, never below several at once, and only what it does."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import examples
from findwall.facts.best_changes import best_step
from findwall.facts.facts import Facts
from findwall.facts.number_formats import under_autocast, value_bytes
from findwall.facts.op_shapes import channels_last
from findwall.fixes import Use, all_fixes
from findwall.fixes.at_best import step_at_best, together_at_best
from findwall.fixes.predict import ends, predict
from findwall.replay.change import Change
from fixes.recorded import job
from sketch import DRAWINGS, KERNELS, Drawing, Drawn, facts_of, sketch
from speaking import in_words

FIXES = all_fixes()
ROUNDING_NS = 1.0
IMAGE = [128, 256, 56, 56]
CONVOLUTION = Drawn(
    "sm90_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "aten::cudnn_convolution"
).given(IMAGE, [256, 256, 3, 3])
TURN = Drawn(
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>", "aten::cudnn_convolution"
).given(IMAGE, [256, 256, 3, 3])
BATCH_NORM = Drawn("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "aten::cudnn_batch_norm").given(
    IMAGE, [256]
)
RELU = Drawn(KERNELS["k"].kernel, "aten::clamp_min_").given(IMAGE)
GROUP_NORM = Drawn(KERNELS["w"].kernel, "aten::native_group_norm").given(IMAGE, [256], [256])
NETWORK = {"v": CONVOLUTION, "t": TURN, "w": BATCH_NORM, "r": RELU, "g": GROUP_NORM}


def uses(facts: Facts) -> dict[str, Use]:
    said = {name: fix.advise(facts) for name, fix in FIXES.items()}
    return {name: one for name, one in said.items() if isinstance(one, Use) and one.shorter_step}


def at_best(facts: Facts, name: str) -> float | None:
    outcome = FIXES[name].advise(facts)
    return step_at_best(FIXES[name], outcome, facts) if isinstance(outcome, Use) else None


def drawn(gpu: str) -> Facts:
    """Three steps of a network on images, every kernel two milliseconds long, all launched at once."""
    cpu = ("o" * (len(gpu) // 2)).ljust(len(gpu)) * 3
    return facts_of(sketch(cpu, gpu * 3, "|".ljust(len(gpu)) * 3, kernels=NETWORK))


def checked(facts: Facts) -> None:
    outcomes = uses(facts)
    best = {name: step_at_best(FIXES[name], one, facts) for name, one in outcomes.items()}
    for name, one in outcomes.items():
        assert 0 <= best[name] <= facts.step + ROUNDING_NS, name
        likely = predict(facts, {name: one})
        assert likely is None or 0 < likely.low <= likely.mid <= likely.high, name
    names = sorted(best, key=lambda name: best[name])[:4]
    for first, second in permutations(names, 2):
        stack = together_at_best({name: outcomes[name] for name in (first, second)}, facts)
        assert stack <= min(best[first], best[second]) + ROUNDING_NS, (first, second)


@examples.drawn(20)
@given(DRAWINGS)
def test_intervals_are_in_order_and_a_stack_at_best_is_no_worse_than_its_parts(drawing: Drawing) -> None:
    checked(drawing.facts)


@examples.drawn(13)
@given(st.permutations(["vv", "tt", "ww", "rr", "mm", "kk"]))
def test_whatever_the_order_of_kernels_no_best_is_above_the_step(order: list[str]) -> None:
    checked(drawn("".join(one.upper() if at % 2 else one for at, one in enumerate(order))))


@pytest.mark.parametrize("name", ["conv_fp32", "layout_flips", "upcast_tower", "own_profiler"])
def test_on_recorded_jobs_too(name: str) -> None:
    checked(job(name))


def test_the_compiler_makes_images_channels_last_besides() -> None:
    """So its best is not above that of channels-last alone."""
    facts = drawn("vvTTwwRRVVttWWrr")
    assert not channels_last(facts)
    compiled, turned = at_best(facts, "torch-compile"), at_best(facts, "channels-last")
    assert compiled is not None and turned is not None and compiled < turned < facts.step


def test_what_reads_images_channels_first_alone_turns_them_back() -> None:
    """A group norm copies its images, and so does the convolution behind it: what the library's copies took,
    as many times as norms follow, is no gain. A batch norm knows both layouts."""
    advice = {
        gpu: FIXES["channels-last"].advise(drawn(gpu)) for gpu in ("vvTTwwRR", "vvTTggRR", "vvTTggGGggGG")
    }
    known, one, many = advice.values()
    assert isinstance(known, Use) and not known.may
    assert isinstance(one, Use) and len(one.may) == 2
    played = [
        ends(drawn(gpu), {"channels-last": use}) for gpu, use in zip(advice, (known, one), strict=False)
    ]
    with_both, with_one = played
    assert with_both is not None and with_one is not None and with_one.mid > with_both.mid
    assert with_one.short < with_one.mid < with_one.long
    assert not isinstance(many, Use) and "channels-first alone" in in_words(many)


def test_channels_last_fuses_nothing() -> None:
    """What is pointwise still moves its bytes: one read and one write."""
    facts = drawn("vvTTwwRR")
    best = at_best(facts, "channels-last")
    bandwidth = float(facts.ceilings.bandwidth or np.nan)
    assert best is not None and best >= 4 * 4.0 * np.prod(IMAGE) / bandwidth * 1e9


def test_autocast_halves_no_layer_norm_and_no_narrow_value() -> None:
    narrow = KERNELS["k"].given([32768, 8192], dtype="c10::BFloat16")
    facts = facts_of(sketch(cpu="oooo" * 3, gpu="kwtN" * 3, steps="|   " * 3, kernels={"n": narrow}))
    left = under_autocast(facts)[:4]
    assert left.tolist() == [0.5, 1.0, 0.5, 1.0]
    assert value_bytes(facts, np.arange(4)).tolist() == [4, 4, 4, 2]


def test_bf16_in_the_default_layout_is_told_to_come_with_channels_last() -> None:
    assert not channels_last(job("conv_fp32"))
    outcome = FIXES["bf16-autocast"].advise(job("conv_fp32"))
    assert isinstance(outcome, Use) and "Use channels-last with it" in in_words(outcome)


def test_time_that_nothing_traced_explains_may_be_what_the_device_waits_for_most() -> None:
    """Timed at 30 ms, traced at 10: whoever takes the loader's wait away may take the rest as well."""
    timeline = sketch(cpu="ddddddddo " * 3, gpu="        mm" * 3, steps="|         " * 3)
    facts = facts_of(timeline, step_ms=30)
    left = facts.reading.likely.left_over
    waiting = best_step(facts, Change(), ("loader-starved",))
    assert waiting == pytest.approx(facts.step - left)
    assert best_step(facts, Change(), ("fast-path-off",)) == pytest.approx(facts.step)
