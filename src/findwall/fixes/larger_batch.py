"""Put more samples into a step, so that each launch and each weight read serves more of them.

What it does:
The host issues as many kernels for a batch of 8 as for one of 64. As long as launches or half-empty
kernels fill the step, a larger batch costs almost nothing: samples per second rise until the device
is the limit. In inference it also shares each read of the weights among more requests.

When it does not help:
The device is busy with large kernels: twice the batch takes twice as long. Double it until
samples per second stop growing.

Risk:
It changes training (learning rate, noise, steps per epoch) and latency, and needs memory. Gradient
accumulation gives a larger batch without the memory, but also without the gain.
"""

from __future__ import annotations

from findwall.attribute.device_kind import device_word, pieces
from findwall.attribute.device_time import busy_share, small_kernels
from findwall.attribute.facts import Facts
from findwall.attribute.figures import step_ms
from findwall.attribute.job import is_training
from findwall.attribute.parts import mostly_over_parts
from findwall.attribute.waits import launch_idle
from findwall.fixes import Fix, NoUse, Outcome, Use
from findwall.model.catalogue import WORTH_IT
from findwall.units import format_share

MOVES = ("memory-roof", "launch-bound")


def advise(facts: Facts) -> Outcome:
    share = format_share(busy_share(facts))
    if launch_idle(facts) > WORTH_IT * step_ms(facts):
        if mostly_over_parts(facts):
            return NoUse("a Python loop goes over the samples, so that a larger batch has more rounds")
        how = (
            f"Raise the batch: the host issues about {small_kernels(facts):,.0f} {pieces(facts)} per step "
            "whatever its size, unless a loop goes over it, and the "
            f"{device_word(facts)} is busy only {share} of that time. "
            "Samples per second rise; the step gets no shorter."
        )
    elif not is_training(facts):
        how = (
            "Raise the batch: requests share each read of the weights. Requests per second rise; the step "
            "gets "
            "no shorter."
        )
    else:
        return NoUse(f"the device is busy {share} of the step, so a larger batch takes proportionally longer")
    return Use(how, None, shorter_step=False)


FIX = Fix(MOVES, "needs-review", advise)
