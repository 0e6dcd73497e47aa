"""Keep images channels-last in memory, as the tensor cores read them.

What it does:
Convolutions on tensor cores want the channels of a pixel side by side (NHWC). Given the default
layout (NCHW), the library reorders the input, and the result back, layer after layer, and adds
the bias in a separate kernel. One change at the start keeps the whole network in the right order:

    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)

When it does not help:
Nothing is convolved, or the network is channels-last already. Ops that do not know the layout turn
it back: then the copies only move elsewhere, and those ops are what to look at.

Risk:
None for the results beyond rounding. Code that calls `.view` on activations or relies on
`.is_contiguous()` must be checked.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.copies import turned_by_library
from findwall.attribute.device_time import of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, step_ms
from findwall.attribute.layouts import channels_last, convolves, on_images, under_convolution
from findwall.attribute.likely import compiles, in_layout, narrows, turned
from findwall.attribute.whatif import at_least_bytes, bare_convolutions, gone
from findwall.fixes import Fix, Made, NoUse, Outcome, use
from findwall.model.catalogue import MATRIX_CLASSES, WORTH_IT
from findwall.replay.change import Change

MOVES = ("layout-copies", "slow-kernels", "unfused-pointwise")
# Classes of kernels that read images, beside the convolutions.
READ_IMAGES = ("norm", "pointwise", "reduce", "copy", "other")


def advise(facts: Facts) -> Outcome:
    if not convolves(facts):
        return NoUse("there are no convolutions in this step")
    if channels_last(facts):
        return NoUse("the convolutions already read channels-last tensors")
    inside = under_convolution(facts)
    spent = time_of(facts, np.flatnonzero(inside | of_class(facts, "conv")))
    if spent < WORTH_IT * step_ms(facts):
        return NoUse(f"convolutions take only {a_step(spent)}")
    if not on_images(facts):
        return NoUse("no convolution here reads images of 4 dims")
    copied = time_of(facts, facts.atoms_of("layout-copies"))
    slow = [atoms[inside[atoms]] for atoms in map(facts.atoms_of, MOVES[1:])]
    if copied + time_of(facts, np.concatenate(slow)) <= 0:
        return NoUse("there is no layout copy or slow convolution left to remove")
    own = time_of(facts, np.setdiff1d(facts.atoms_of("layout-copies"), turned_by_library(facts)))
    between = "the convolutions read the other layout today"
    if copied > 0:
        between = f"{a_step(copied)} only reorders tensors"
    if own > 0:
        between += f", {a_step(own)} of it by the job's own `.contiguous()` and `.permute`: drop them as well"
    return use(
        f"Call `model.to(memory_format=torch.channels_last)` and do the same for its input; {between}.",
        _best(facts),
        likely=lambda made: _likely(facts, made),
    )


def _best(facts: Facts) -> Change:
    """No tensor is turned round, and what reads images (norms and pooling too) has kernels that do so at the
    memory's speed. Nothing is fused, and matmuls are what they were."""
    images = np.flatnonzero(of_class(facts, *READ_IMAGES) & ~under_convolution(facts))
    turned = facts.atoms_of("layout-copies")
    return gone(facts, turned) + bare_convolutions(facts) + at_least_bytes(facts, images)


def _likely(facts: Facts, made: Made) -> Change:
    """Convolutions as fast as they run in this layout, no tensor turned round by them, norms at the speed
    they have in it; what else reads images is as fast in either, and what the job copies it still copies."""
    if compiles(made):  # which turns images by itself
        return Change()
    inside, multiply = under_convolution(facts), of_class(facts, *MATRIX_CLASSES)
    change = gone(facts, turned_by_library(facts)) + gone(facts, np.flatnonzero(inside & ~multiply))
    if narrows(made):  # which says how fast products and norms are in this layout
        return change
    return change + turned(facts) + in_layout(facts, "nhwc")


FIX = Fix(MOVES, "safe", advise, tried=9)
