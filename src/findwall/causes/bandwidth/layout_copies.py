"""Tensors are copied to another layout, or to another place on the same device.

What it finds:
Copies that keep the type: .contiguous(), transposes and permutes made real, cat and stack, clones, cuDNN's
own NCHW/NHWC conversions, device-to-device memcpys, a history that moves on by one place a step.

Why it costs:
The data is read and written without any arithmetic. A convolution library that wants channels last
converts its input and output on every call if the model keeps channels first.

How it is told apart:
By the kernel's class (copy) with equal types on both sides; a change of type is dtype-casts. Copies
between host and device are copy-exposed or host-sync. A copy at the memory's full speed is one as well:
nothing is computed, so all of it may go, but for what a chain of other kernels reads or writes through it.
What an inference server writes into its cache, and memory that is set, is memory-roof. On a CPU what a
routine of linear algebra or a product copies for itself is a part of it, which nobody can drop.

What helps:
channels-last for convolutional models, buffer-once where a cache grows by torch.cat from step to step,
fewer-copies (no .contiguous() without need, no repeated cat in loops, writing into a preallocated tensor,
which is a ring where a history moves on); torch-compile removes many, as does reduce-overhead, the same with
graphs around it. pairwise-product where differences of all pairs are written out, scale-activations where a
convolution has a weight for each sample, builtin-ops where images are unfolded for a product. A sort copies
all that it is given: topk where only the first few are read. Numbers in fp64 are twice the bytes:
lower-precision.
On a CPU small ops of a loop take their time themselves: vectorise-loop, foreach-checks, averages-in-lists.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import Cause, Claim, Facts, Told, carriers, carrying
from findwall.facts.cause_kernels import CARRIERS_SEARCHED, moves_on
from findwall.facts.memory_copies import appended_ms, turned_by_library
from findwall.facts.step_traits import is_training
from findwall.facts.waits import RECOMPILATION, grows
from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.units import ms

NAME = "layout-copies"


def says(facts: Facts) -> Told:
    fact = Claim("layout-copies/copies", {"moves_on": moves_on(facts)}, carrying(facts, NAME))
    return Told(fact, _advice(facts), _hidden_gain(facts))


def _hidden_gain(facts: Facts) -> Claim | None:
    """What comes back once lengths are no longer new, where setting up for them hides it today."""
    if not grows(facts) or facts.recoverable()[RECOMPILATION] < WORTH_IT * facts.step:
        return None
    saves = facts.saved((RECOMPILATION, NAME)) - facts.saved((RECOMPILATION,))
    return Claim("gain/after-set-up", {"saves_ms": ms(saves), "waits_ms": facts.spent_ms(RECOMPILATION)})


def _advice(facts: Facts) -> Claim:
    if appended_ms(facts) > MAJORITY_SHARE * facts.spent_ms(NAME) and not is_training(facts):
        return Claim("advise/buffer-once")
    if moves_on(facts):
        return Claim("advise/fewer-copies/in-place")
    longest = [one.atom for one in carriers(facts, NAME, CARRIERS_SEARCHED)]
    if np.isin(longest, turned_by_library(facts)).any() and "channels-last" not in facts.refused:
        return Claim("advise/channels-last")
    compiler = [] if "torch-compile" in facts.refused else [Claim("advise/torch-compile/copies")]
    return Claim("advise/fewer-copies", parts=compiler)


CAUSE = Cause(NAME, says)
