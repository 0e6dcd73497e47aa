"""Kernels run well under the ceiling, and neither their format nor their shapes explain it.

What it finds:
Compute-bound kernels on the right number format and with even dimensions that stay under 75 % of what
this GPU reaches on large matmuls; and kernels of any class, norms, reductions or softmax among them, that
stay under 40 % of what its memory can move.

Why it costs:
The library's choice of kernel does not fit the problem: too few tiles to fill the device, a short
inner dimension, a layout that needs transposing, a generation-old kernel, grouped convolutions. Kernels
that sort or select (median, top-k) look through short rows with few threads each. A scan (cumsum, cumprod)
along a dimension that is not the innermost has one thread for each column, which goes down it alone.

How it is told apart:
It is what is left of compute-bound time after fast-path-off and misaligned-shapes have taken theirs.
Kernels that last only a few microseconds are too small for either ceiling: launch-bound. Where clocks were
held down the time is throttled.

What helps:
channels-last and cudnn-benchmark for convolutions, autotune-kernels (torch.compile with mode="max-autotune":
both try other kernels on your shapes), bf16-autocast where TF32 is in use and fp16-autocast where there is
neither, a larger batch (more tiles; for a matrix times a vector: several vectors at once), more-threads
where a CPU job leaves cores idle, a sorting network of minimum and maximum over whole tensors where few
values are put in order, topk where only the first of a sort are read, lookup-not-onehot and index-select
where rows are taken by number, separable-filter where a box or a Gaussian is applied over its whole window,
smooth-fft for Fourier transforms of lengths with a large prime in them, product-order where three matrices
are multiplied the long way, scale-activations for convolutions with a weight for each sample, where-not-mask
where `x[mask]` is only summed, linalg-route for routines of linear algebra, scan-innermost for scans down
columns, builtin-ops where all pairs are compared to be counted, lower-precision where numbers are fp64,
debug-off where deterministic algorithms need not be, custom-kernels as a last resort.
On a CPU small ops of a loop take their time themselves: vectorise-loop, foreach-checks, averages-in-lists.
Where much of it is forward work without gradients: evaluate-less-often.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.causes import Cause, Claim, Facts, Told, carriers
from findwall.facts.cause_kernels import Carrier, work_classes
from findwall.facts.host_cores import cores_in_use, idle_cores_ms, saved_on_all_cores_ms
from findwall.model.catalogue import NEAR
from findwall.step.step_facts import StepFacts
from findwall.work.fusion import SCAN, WRITTEN_ANEW, on_complex
from findwall.work.op_arguments import Arguments
from findwall.work.op_families.convolution import filter_of
from findwall.work.op_families.fft import OPS as FOURIER
from findwall.work.op_families.indexing import row_length

NAME = "slow-kernels"
# Values put in order or picked by rank. Whole tensors compared with each other do that for few of them.
_SELECTS = re.compile(r"^aten::(?:(?:nan)?median|kthvalue|topk|sort|argsort|msort)$")
FEW_VALUES = 32  # up to here a network has some 200 exchanges at most. Chosen by hand, not calibrated.


def says(facts: Facts) -> Told:
    idle = cores_in_use(facts)
    figures = work_classes(facts, NAME)
    if idle is not None and idle.idle > 0 and idle_cores_ms(facts) > 0:
        fact = Claim("slow-kernels/idle-cores", {**figures, "used": idle.used, "cores": idle.cores})
        saves = Claim("gain/alone", {"saves_ms": saved_on_all_cores_ms(facts, idle)})
        return Told(fact, Claim("advise/more-threads", {"threads": idle.cores}), saves)
    longest = next(iter(carriers(facts, NAME)), None)
    figures |= {"roof_share": NEAR, "reached_share": longest.reached if longest else None}
    names = {"kernel": longest.kernel} if longest is not None else {}
    return Told(Claim("slow-kernels/below", figures, names), _advice(facts, longest))


def _advice(facts: Facts, longest: Carrier | None) -> Claim:
    """What may run the longest of them better: that depends on what it does, and on whose kernel it is."""
    kind = facts.kernel_class(longest.atom) if longest is not None else "matmul"
    if longest is not None and _is_filter(facts, longest) and "separable-filter" not in facts.refused:
        return Claim("advise/separable-filter")
    if kind == "conv" and "channels-last" not in facts.refused:
        return Claim("advise/channels-last/autotune")
    if longest is not None and _is_foreign(longest, kind):
        return Claim("advise/custom-kernels/foreign")
    op = (longest.op if longest is not None else None) or ""
    tunes = "autotune-kernels" not in facts.refused
    if longest is not None and _SELECTS.match(op):
        return _order_otherwise(facts, longest)
    if op.removeprefix("aten::") in FOURIER and "smooth-fft" not in facts.refused:
        return Claim("advise/smooth-fft")
    if kind in ("matmul", "conv") and tunes:
        return Claim("advise/autotune-kernels")
    if kind == "attention":
        return Claim("slow-kernels/other-attention")
    if SCAN.match(op):
        down = "scan-innermost" not in facts.refused
        return Claim("advise/scan-innermost") if down else Claim("slow-kernels/on-more-data")
    if kind not in WRITTEN_ANEW or _is_complex(facts, longest):  # by no compiler
        return Claim("slow-kernels/less-often")
    compiler = [] if "torch-compile" in facts.refused else [Claim("advise/torch-compile/kernel")]
    return Claim("slow-kernels/on-more-data", parts=compiler)


def _is_complex(facts: StepFacts, longest: Carrier | None) -> bool:
    return longest is not None and bool(on_complex(facts.timeline, np.array([longest.op_row]))[0])


def _is_filter(facts: StepFacts, longest: Carrier) -> bool:
    """Whether it filters each channel by itself, with a weight that is not trained."""
    given = filter_of(longest.op or "", facts.timeline.inputs_of(longest.op_row))
    return given is not None and not given.learns


def _order_otherwise(facts: StepFacts, longest: Carrier) -> Claim:
    """No compiler writes such a kernel anew; for few values no kernel of its own is needed."""
    inputs = facts.timeline.inputs_of(longest.op_row)
    op = (longest.op or "").removeprefix("aten::")
    values = row_length(op, Arguments(inputs)) if inputs is not None else None
    if values is None or values > FEW_VALUES:
        return Claim("advise/custom-kernels/select")
    return Claim("slow-kernels/sorting-network", {"values": values})


def _is_foreign(longest: Carrier, kind: str) -> bool:
    """Whether somebody else's code launched the kernel, so that no setting of torch chooses another.

    Where no op is recorded, a name that no library has is taken for one that a person gave.
    """
    if longest.op is None:
        return kind == "other"
    return not longest.op.startswith("aten::") and not longest.kernel.startswith("triton_")


CAUSE = Cause(NAME, says, reached="ceiling")
