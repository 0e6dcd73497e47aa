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

from findwall.facts.facts import busy_share
from findwall.facts.gains import launch_idle
from findwall.facts.host_loops import mostly_over_parts
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    device_word,
    is_training,
    no_use,
    pieces,
    small_kernels,
    step_ms,
)
from findwall.model.catalogue import WORTH_IT


def use(facts: Facts) -> Outcome:
    share = busy_share(facts)
    if launch_idle(facts) > WORTH_IT * step_ms(facts):
        if mostly_over_parts(facts):
            return no_use("larger-batch/loop-over-samples")
        figures: Figures = {
            "issued": small_kernels(facts),
            "pieces": pieces(facts),
            "device_word": device_word(facts),
            "busy_share": share,
        }
        return Use(Claim("larger-batch/same-launches", figures), shorter_step=False)
    if not is_training(facts):
        return Use(Claim("larger-batch/shared-reads"), shorter_step=False)
    return no_use("larger-batch/busy", busy_share=share)


FIX = Fix(("memory-roof", "launch-bound"), "needs-review", use, of_anything=True)
