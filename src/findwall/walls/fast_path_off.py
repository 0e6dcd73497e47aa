"""Matrix work runs on the vector units in fp32 although tensor cores could do it.

What it finds:
Matmuls, convolutions and attention on fp32 (or fp64) data whose kernel does not use tensor cores, on
a GPU that has them.

Why it costs:
Tensor cores multiply an order of magnitude more numbers per second than the vector units, but only in
TF32, 16-bit or smaller formats. fp32 without TF32 leaves them idle.

How it is told apart:
By the kernel's name (sgemm, simt, ffma) together with the type of its operands, and only where
arithmetic, not memory, bounds it. A 16-bit matmul that falls back because of odd dimensions is
misaligned-shapes; a tensor-core kernel that is merely slow is slow-kernels.

What helps:
tf32 (torch.set_float32_matmul_precision("high"): fp32 range, ten bits of mantissa) and bf16-autocast
(torch.autocast("cuda", dtype=torch.bfloat16); fp16-autocast with a GradScaler before Ampere).
channels-last makes 16-bit convolutions faster still. cudnn-benchmark finds faster fp32 kernels where the
results must stay fp32. lower-precision where the data is fp64: fp32 first.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

from findwall.attribute.carriers import as_evidence, carriers, name_carrier
from findwall.attribute.facts import Facts
from findwall.attribute.figures import calls_text, opening, told
from findwall.attribute.workmodel.floors import fast_format
from findwall.model.diagnosis import Evidence
from findwall.units import format_ms

CAUSE = "fast-path-off"


def evidence(facts: Facts) -> list[Evidence]:
    found = []
    for carrier in carriers(facts, CAUSE):
        text = f"{name_carrier(facts, carrier)}: {facts.math(carrier.atom) or 'fp32'} on the vector units, "
        text += f"{calls_text(carrier.calls)}, {format_ms(carrier.ms)}"
        if carrier.floor_ms is not None:
            text += f"; {format_ms(carrier.floor_ms)} at the tensor cores' ceiling"
        found.append(as_evidence(facts, carrier, text))
    return found


def sentence(facts: Facts) -> str:
    kinds = {facts.kernel_class(carrier.atom) for carrier in carriers(facts, CAUSE)}
    what = (
        "convolutions" if kinds == {"conv"} else "matmuls and convolutions" if "conv" in kinds else "matmuls"
    )
    now = next((facts.math(carrier.atom) for carrier in carriers(facts, CAUSE)), None) or "fp32"
    first = "make the data fp32 (.float()) if fp64's digits are not needed, then " if now == "fp64" else ""
    fact = f"{opening(facts, CAUSE)} goes to {now} {what} on the vector units, {_faster(facts, now)}"
    return told(facts, CAUSE, fact, f"{first}{_advice(facts, 'conv' in kinds)}")


def _faster(facts: Facts, now: str) -> str:
    flops, fast = facts.ceilings.flops, fast_format(facts.ceilings)
    if fast is None or not flops.get(now):
        return "and the tensor cores are not used"
    return f"although the tensor cores do {flops[fast] / flops[now]:.1f} times as much in {fast}"


def _advice(facts: Facts, convolutions: bool) -> str:
    fast = fast_format(facts.ceilings)
    if fast == "fp16":
        return "run the model under fp16 autocast with a GradScaler (this GPU has no TF32)"
    if fast == "bf16":
        return "run the model under bf16 autocast (TF32 is no faster than fp32 on this GPU)"
    cudnn = " and torch.backends.cudnn.allow_tf32 = True" if convolutions else ""
    return f'set torch.set_float32_matmul_precision("high"){cudnn}, or run under bf16 autocast'
