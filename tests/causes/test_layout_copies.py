"""Copies that keep the type."""

from __future__ import annotations

from findwall.causes.bandwidth import layout_copies
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.model.events import Kind
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|        |        |        "
CPU = "oo       oo       oo"
GPU = "lllLLL   lllLLL   lllLLL"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="kkkKKK   kkkKKK   kkkKKK", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def converting() -> Facts:
    """A convolution library turns the images round, and no line of the job does."""
    kernels = {"l": Drawn("void cudnn::ops::nchwToNhwcKernel<float, float>", "aten::cudnn_convolution")}
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels=kernels))


def moving_on() -> Facts:
    """A history is written again a place further."""
    memcpy = Drawn("Memcpy DtoD (Device -> Device)", "aten::cat", kind=Kind.MEMCPY, nbytes=10**9)
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"l": memcpy}))


def test_a_library_that_converts_layouts_asks_for_channels_last() -> None:
    facts = converting()
    assert "channels_last" in in_words(layout_copies.CAUSE, facts)
    assert "contiguous" in in_words(layout_copies.CAUSE, fires())


def test_a_history_that_moves_on_is_written_in_place() -> None:
    text = in_words(layout_copies.CAUSE, moving_on())
    assert "to another place" in text and "in place" in text and "contiguous" not in text


def test_only_the_copies_that_a_job_makes_itself_can_be_dropped() -> None:
    fewer = all_fixes()["fewer-copies"]
    assert isinstance(fewer.advise(fires()), Use)
    refused = fewer.advise(converting())
    assert isinstance(refused, NoUse) and "convolutions" in in_words(refused)


def test_a_history_is_kept_in_a_ring_and_no_compiler_folds_it() -> None:
    ring = all_fixes()["fewer-copies"].advise(moving_on())
    assert isinstance(ring, Use) and "ring" in in_words(ring) and "contiguous" not in in_words(ring)
    compiled = all_fixes()["torch-compile"].advise(moving_on())
    assert not isinstance(compiled, Use) or "copies" not in in_words(compiled)
