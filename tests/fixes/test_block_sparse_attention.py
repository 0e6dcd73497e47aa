"""What is predicted of two jobs, drawn as they ran on an H200 with a dense mask, beside what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts, of_class
from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import ends
from findwall.model.dataflow import Unneeded
from findwall.units import ms
from sketch import Drawn, facts_of, sketch
from speaking import in_words

ID = "block-sparse-attention"
FIX = all_fixes()[ID]
WHERE = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<where>>"


def attending(
    forward: int, backward: int, rest: int, shape: list[int], blocks: float, through: float
) -> Facts:
    """A step with so many ms of attention, of a mask that lets these shares through; a millisecond makes
    numbers of the mask."""
    line = "f" * forward + "p" * backward + "w" + "m" * rest
    drawn = {
        "f": Drawn(
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "aten::_cudnn_attention_forward"
        ).given(shape, shape, shape, dtype="c10::BFloat16"),
        "p": Drawn(
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "aten::_cudnn_attention_backward"
        ).given(shape, shape, shape, shape, dtype="c10::BFloat16"),
        "w": Drawn(WHERE, "aten::where").given([shape[2], shape[2]]),
    }
    # The host is ahead: all steps are issued while the first runs.
    facts = facts_of(sketch(steps="|   " * 3, cpu="oooo" * 3, gpu=" " + line * 3, kernels=drawn))
    names = np.array([facts.op_name(atom) for atom in range(len(facts.atoms.index))])
    atoms = np.flatnonzero(of_class(facts, "attention") | (names == "aten::where"))
    share = np.full(len(atoms), 1.0)
    one = Unneeded("masked", atoms, -1, 0, "model.py:69", left=share * blocks, through=share * through)
    return replace(facts, unneeded=(one,))


# Measured: six layers over 2 x 8192 tokens with a window of 512, then in chunks; and over 10304 tokens of 40
# frames, then frame by frame. Attention's layers are drawn as one of a larger batch.
MEASURED = {
    "window_lm": (lambda: attending(9, 24, 16, [12, 12, 8192, 64], 0.0757, 0.0606), 50.0, 25.9),
    "clip_actions": (lambda: attending(10, 24, 20, [6, 16, 10304, 64], 0.0434, 0.0250), 55.0, 21.6),
}


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_measured_lies_between_the_ends(name: str) -> None:
    make, step_ms, measured_ms = MEASURED[name]
    facts = make()
    assert ms(facts.step) == pytest.approx(step_ms, abs=0.5)
    use = FIX.advise(facts)
    assert isinstance(use, Use) and "at model.py:69" in in_words(use)
    found = ends(facts, {ID: use})
    assert found is not None
    assert ms(found.short) < measured_ms < ms(found.long)
    assert ms(step_at_best(FIX, use, facts)) < ms(found.short) < ms(found.mid) < ms(found.long) < step_ms


def test_what_is_left_grows_with_the_blocks() -> None:
    steps = []
    for blocks in (0.05, 0.2, 0.45):
        facts = attending(9, 24, 16, [12, 12, 8192, 64], blocks, 0.05)
        use = FIX.advise(facts)
        assert isinstance(use, Use)
        found = ends(facts, {ID: use})
        assert found is not None and found.long <= facts.step * 1.001
        steps.append(found.mid)
    assert steps == sorted(steps) and steps[0] < steps[-1]


CALL = "aten::scaled_dot_product_attention"
QKV = ([1, 8, 4096, 64],) * 3


def traced(op: str, *dims: list[int]) -> Facts:
    """A trace alone, of one op."""
    kernels = {"m": Drawn("fmha_cutlassF_f32_aligned_64x64_rf_sm80", op).given(*dims)}
    return facts_of(sketch(steps="|   " * 3, cpu="o   " * 3, gpu=" mm " * 3, kernels=kernels))


def test_a_trace_alone_does_not_tell_what_a_mask_lets_through() -> None:
    assert isinstance(FIX.advise(traced(CALL, *QKV, [4096, 4096])), CannotTell)
    assert isinstance(FIX.advise(traced(CALL, *QKV)), NoUse)
    assert isinstance(FIX.advise(traced(CALL, *QKV, [64, 128])), NoUse)
    assert isinstance(FIX.advise(traced("aten::mm", [4096, 4096], [4096, 4096])), NoUse)
