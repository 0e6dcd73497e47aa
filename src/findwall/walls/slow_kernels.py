"""Kernels run well under the ceiling for no reason the shapes tell.

What it finds:
Compute-bound kernels on the right number format and with even dimensions that stay under 75 % of what
this GPU reaches on large matmuls; and kernels of any class, norms, reductions or softmax among them, that
stay under 40 % of what its memory can move.

Why it costs:
The library's choice of kernel does not fit the problem: too few tiles to fill the device, a short
inner dimension, a layout that needs transposing, a generation-old kernel, grouped convolutions.

How it is told apart:
It is what is left of compute-bound time after fast-path-off and misaligned-shapes have taken theirs.
Kernels that last only a few microseconds are too small for either ceiling: launch-bound. Where clocks were
held down the time is throttled.

What helps:
channels-last for convolutions, autotune-kernels (cudnn.benchmark, or torch.compile with
mode="max-autotune": they try other kernels on your shapes), bf16-autocast where TF32 is in use, a larger
batch (more tiles), more-threads where a CPU job leaves cores idle, custom-kernels at last.
"""

from __future__ import annotations

from findwall.attribute.budget import ROOF_SHARE
from findwall.attribute.carriers import carriers, kernel_evidence
from findwall.attribute.device_kind import device_word, pieces
from findwall.attribute.facts import Facts
from findwall.attribute.figures import gain, opening
from findwall.attribute.idle_cores import cores_in_use, idle_cores_ms
from findwall.attribute.kernel_names import short_kernel
from findwall.model.diagnosis import Evidence
from findwall.units import format_share

CAUSE = "slow-kernels"


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE, "its ceiling")


def sentence(facts: Facts) -> str:
    found = carriers(facts, CAUSE)
    kinds = {facts.kernel_class(carrier.atom) for carrier in found}
    reached = found[0].reached if found else None
    rate = (
        f", {short_kernel(found[0].kernel)} first, at {format_share(reached)}" if reached is not None else ""
    )
    idle = cores_in_use(facts)
    if idle is not None and idle.idle > 0 and idle_cores_ms(facts) > 0:
        return (
            f"{opening(facts, CAUSE)} are {_names(facts, kinds)} that keep {idle.used:.1f} of {idle.cores} "
            f"cores busy; let them have all (torch.set_num_threads): {gain(facts, CAUSE)}."
        )
    return (
        f"{opening(facts, CAUSE)} are {_names(facts, kinds)} that stay under {format_share(ROOF_SHARE)} of "
        f"this {device_word(facts)}'s ceiling{rate}; {_advice(facts, kinds)}: {gain(facts, CAUSE)}."
    )


def _advice(facts: Facts, kinds: set[str]) -> str:
    """What may run the longest of them better."""
    if "conv" in kinds and "channels-last" not in facts.refused:
        return 'try channels_last and torch.compile(mode="max-autotune")'
    if kinds & {"matmul", "conv"} or not kinds:
        return 'a larger batch fills them better; try torch.compile(mode="max-autotune")'
    if "attention" in kinds:
        return "try another backend of it (torch.nn.attention.sdpa_kernel)"
    return "call them less often or on more at once, or have torch.compile write a kernel of its own"


def _names(facts: Facts, kinds: set[str]) -> str:
    names = {"conv": "convolutions", "attention": "attention kernels", "matmul": "matmuls"}
    found = [names[kind] for kind in sorted(kinds) if kind in names]
    return " and ".join(found) if found else pieces(facts)
