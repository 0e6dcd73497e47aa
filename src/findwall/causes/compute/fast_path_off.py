"""Matrix work runs in a number format that the hardware is not fast in.

What it finds:
On a GPU that has tensor cores: matmuls, convolutions and attention on fp32 (or fp64) data whose kernel does
not use them. On a CPU: matmuls and convolutions of 16-bit numbers, where its cores were measured to multiply
fp32 ones faster.

Why it costs:
Tensor cores multiply an order of magnitude more numbers per second than the vector units, but only in
TF32, 16-bit or smaller formats. fp32 without TF32 leaves them idle. Cores are the other way round: most have
fp32 arithmetic alone, and torch converts each 16-bit number on its way, or takes a plain loop.

How it is told apart:
By the kernel's name (sgemm, simt, ffma) together with the type of its operands, and only where
arithmetic, not memory, bounds it. A 16-bit matmul that falls back because of odd dimensions is
misaligned-shapes; a tensor-core kernel that is merely slow is slow-kernels. On a CPU by the rates that
`findwall ceilings` measured of each format: nothing is said where 16 bits are about as fast.

What helps:
On a CPU full-precision: the model and its data in fp32, without autocast. On a GPU:
tf32 (torch.set_float32_matmul_precision("high"): fp32 range, ten bits of mantissa) and bf16-autocast
(torch.autocast("cuda", dtype=torch.bfloat16); fp16-autocast with a GradScaler before Ampere). channels-last
makes 16-bit convolutions faster still. cudnn-benchmark finds faster fp32 kernels where the results must stay
fp32. lower-precision where the data is fp64: fp32 first. A product with one-hot rows is a lookup:
lookup-not-onehot. Three matrices may be multiplied in a shorter order: product-order. A box or a
Gaussian goes over one dimension after the other: separable-filter.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Figure, Told, carriers
from findwall.facts.cause_kernels import Carrier, as_evidence
from findwall.facts.step_traits import on_cores
from findwall.work.work_facts import WorkFacts, fast_format

NAME = "fast-path-off"


def shows(facts: Facts) -> list[Evidence]:
    return [_shown(facts, carrier) for carrier in carriers(facts, NAME)]


def _shown(facts: Facts, carrier: Carrier) -> Evidence:
    now = facts.math(carrier.atom) or "fp32"
    figures: dict[str, Figure] = {
        "now": now,
        "calls": carrier.calls,
        "ms": carrier.ms,
        "floor_ms": carrier.floor_ms,
    }
    if on_cores(facts):
        fast = {"fast": fast_format(facts.ceilings, now)}
        return as_evidence(facts, carrier, "evidence/slow-format", {**figures, **fast})
    return as_evidence(facts, carrier, "evidence/vector-units", figures)


def says(facts: Facts) -> Told:
    found = carriers(facts, NAME)
    kinds = {facts.kernel_class(carrier.atom) for carrier in found}
    now = next((facts.math(carrier.atom) for carrier in found), None) or "fp32"
    figures = {"conv": "conv" in kinds, "matmul": kinds != {"conv"}, "now": now, **_faster(facts, now)}
    fast = fast_format(facts.ceilings, now)
    if on_cores(facts):
        return Told(Claim("fast-path-off/on-cores", figures), Claim("advise/full-precision"))
    from_fp64 = now == "fp64"
    if fast in ("fp16", "bf16"):
        action = Claim(f"advise/{fast}-autocast", {"from_fp64": from_fp64})
    else:
        action = Claim("advise/tf32", {"from_fp64": from_fp64, "conv": "conv" in kinds})
    return Told(Claim("fast-path-off/vector-units", figures), action)


def _faster(facts: WorkFacts, now: str) -> dict[str, Figure]:
    """The format that the device is faster in, and how many times as fast; empty where unknown."""
    flops, fast = facts.ceilings.flops, fast_format(facts.ceilings, now)
    return {"fast": fast, "ratio": flops[fast] / flops[now]} if fast is not None and flops.get(now) else {}


CAUSE = Cause(NAME, says, shows, kernels=False)
