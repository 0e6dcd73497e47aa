"""Copies that keep the type."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.model.events import Kind
from findwall.walls import layout_copies
from sketch import Drawn, facts_of, sketch

STEPS = "|        |        |        "
CPU = "oo       oo       oo"
GPU = "lllLLL   lllLLL   lllLLL"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="kkkKKK   kkkKKK   kkkKKK", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def test_a_library_that_converts_layouts_asks_for_channels_last() -> None:
    kernels = {"l": Drawn("void cudnn::ops::nchwToNhwcKernel<float, float>", "aten::cudnn_convolution")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels=kernels))
    assert "channels_last" in layout_copies.sentence(facts)
    assert "contiguous" in layout_copies.sentence(fires())


def test_a_history_that_moves_on_is_written_in_place() -> None:
    memcpy = Drawn("Memcpy DtoD (Device -> Device)", "aten::cat", kind=Kind.MEMCPY, nbytes=10**9)
    text = layout_copies.sentence(facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"l": memcpy})))
    assert "to another place" in text and "in place" in text and "contiguous" not in text
