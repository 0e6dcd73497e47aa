"""Tensors are copied to another layout, or to another place on the same device.

What it finds:
Copies that keep the type: .contiguous(), transposes and permutes made real, cat and stack, clones, cuDNN's
own NCHW/NHWC conversions, device-to-device memcpys.

Why it costs:
The data is read and written without any arithmetic. A convolution library that wants channels last
converts its input and output on every call if the model keeps channels first.

How it is told apart:
By the kernel's class (copy) with equal types on both sides; a change of type is dtype-casts. Copies
between host and device are copy-exposed or host-sync.

What helps:
channels-last for convolutional models, fewer-copies (no .contiguous() without need, no repeated cat in loops,
writing into a preallocated tensor); torch-compile removes many.
"""

from __future__ import annotations

from findwall.attribute.carriers import CARRIERS_SEARCHED, carriers, kernel_evidence, ops_named
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import Evidence

CAUSE = "layout-copies"
_CONVERSIONS = ("nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw", "tonhwc", "batched_transpose")


def evidence(facts: Facts) -> list[Evidence]:
    return kernel_evidence(facts, CAUSE)


def sentence(facts: Facts) -> str:
    names = ops_named(facts, CAUSE)
    which = f", mostly in {names}," if names else ""
    fact = (
        f"{opening(facts, CAUSE)} only copies tensors to another layout or place{which} because the next op "
        "wants them laid out differently"
    )
    return told(facts, CAUSE, fact, _advice(facts))


def _advice(facts: Facts) -> str:
    conversions = [
        carrier
        for carrier in carriers(facts, CAUSE, CARRIERS_SEARCHED)
        if any(word in carrier.kernel.lower() for word in _CONVERSIONS)
    ]
    if conversions and "channels-last" not in facts.refused:
        return "put model and input into channels_last"
    compiler = "" if "torch-compile" in facts.refused else ", or let torch.compile remove them"
    return f"drop .contiguous(), cat and permute where you can{compiler}"
