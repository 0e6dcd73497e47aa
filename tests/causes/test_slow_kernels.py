"""Matmuls far under the ceiling with nothing wrong in type or shape."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.causes.compute import slow_kernels
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.model.causes import cause_index
from sketch import KERNELS, Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "
CPU = "o        o        o"
SLOW = cause_index("slow-kernels")


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmmmmm   mmmmmm   mmmmmm", steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    blank = {"m": Drawn(KERNELS["m"].kernel, "aten::mm")}
    return facts_of(sketch(cpu=CPU, gpu="mmmmmm   mmmmmm   mmmmmm", steps=STEPS, kernels=blank))


def test_says_how_far_below() -> None:
    assert "16 % of its ceiling" in evidence_of(slow_kernels.CAUSE, fires())[0]


def drawn(**kernels: Drawn) -> Facts:
    gpu = "mmmmaa   mmmmaa   mmmmaa"
    return facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS, kernels=kernels))


ATTENTION = Drawn("flash_fwd_kernel", "aten::_flash_attention_forward").given(
    [8, 128, 16, 64], [8, 128, 16, 64], [8, 128, 16, 64], dtype="c10::BFloat16"
)


def test_a_kernel_of_the_team_is_not_called_attention() -> None:
    """The longest is a Triton kernel that somebody wrote; torch's own attention comes after it."""
    facts = drawn(m=Drawn("linear_kernel", "TeamLayer"), a=ATTENTION)
    facts = replace(facts, atoms=replace(facts.atoms, cause=np.full_like(facts.atoms.cause, SLOW)))
    text = in_words(slow_kernels.CAUSE, facts)
    assert "goes to kernels that" in text and "attention" not in text
    assert "Tune that kernel for these shapes" in text and "sdpa_kernel" not in text


def test_attention_of_torch_has_other_backends() -> None:
    facts = drawn(m=ATTENTION, a=ATTENTION)
    facts = replace(facts, atoms=replace(facts.atoms, cause=np.full_like(facts.atoms.cause, SLOW)))
    text = in_words(slow_kernels.CAUSE, facts)
    assert "goes to attention kernels that" in text and "torch.nn.attention.sdpa_kernel" in text


def test_matmuls_are_called_so() -> None:
    assert "goes to matmuls that" in in_words(slow_kernels.CAUSE, fires())


def test_no_compiler_is_asked_for_what_none_writes() -> None:
    """Distances between rows are one library op: neither generated nor tried in another form."""
    distances = Drawn("cdist_kernel_cuda_impl", "aten::_cdist_forward").given([8192, 256], [2048, 256])
    facts = drawn(m=distances, a=distances)
    facts = replace(facts, atoms=replace(facts.atoms, cause=np.full_like(facts.atoms.cause, SLOW)))
    assert "torch.compile" not in in_words(slow_kernels.CAUSE, facts)
    assert isinstance(all_fixes()["autotune-kernels"].advise(facts), NoUse)
    assert isinstance(all_fixes()["autotune-kernels"].advise(fires()), Use)
