"""Run the forward pass under autocast in bfloat16: matmuls on the tensor cores, activations in half
the bytes.

What it does:
Inside `torch.autocast("cuda", dtype=torch.bfloat16)` matmuls, convolutions and attention take
16-bit inputs; reductions, norms and losses stay in fp32. bfloat16 has fp32's range, so no loss
scaling is needed. Tensor cores are several times faster than the fp32 units and twice as fast as
TF32, and activations between matmuls take half the memory and half the bandwidth.

When it does not help:
The matmuls already run in 16 bits. Or the step waits for data, the host or communication: then the
device only waits longer. Convolutions that read the default layout (NCHW) lose what they gain to
reordering 16-bit images: use channels-last with it. Layer norms, losses, powers and embeddings
stay in fp32 under autocast and get no shorter. Chains of pointwise kernels on fp32 data that no matmul
feeds stay fp32 as well; such data must be made bfloat16 itself.

Risk:
8 bits of mantissa instead of 24 in what autocast covers. Most training is indifferent; check the
loss curve. On GPUs without bfloat16 (V100, T4) it is float16 with a GradScaler.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.casts import cast_ns
from findwall.attribute.device_kind import on_cores
from findwall.attribute.device_time import of_class, rows_of, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.job import is_training
from findwall.attribute.layouts import channels_last, convolves
from findwall.attribute.likely import (
    host_ns,
    layout_with,
    narrowed_ns,
    products_ns,
    to_likely,
)
from findwall.attribute.number_formats import SIXTEEN_BIT_BYTES_SHARE, math_times, on_wide_data
from findwall.attribute.whatif import at_math, at_most, knows_floor, to_floor
from findwall.attribute.widths import under_autocast
from findwall.fixes import CannotTell, Fix, Made, NoUse, Outcome, use
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.replay.change import Change, Issue

MOVES = (
    "fast-path-off",
    "slow-kernels",
    "unfused-pointwise",
    "unfused-attention",
    "at-the-roof",
    "memory-roof",
)
WIDE_FORMATS = ("fp32", "tf32")  # autocast leaves fp64 as it is
# Of the time in matmuls: less in fp32 is not worth a change of type. Chosen by hand, not calibrated.
WIDE_MATMUL_SHARE = 0.1
PRODUCTS_A_LAYER = 3  # one forward, two backward: what the measured cost of casts is shared out over


def advise(facts: Facts) -> Outcome:
    times = math_times(facts)
    wide = sum(times.get(name, 0.0) for name in WIDE_FORMATS)
    if wide > WIDE_MATMUL_SHARE * sum(times.values()):
        return _for_matmuls(facts, wide)
    chain = on_wide_data(facts, facts.atoms_of("unfused-pointwise"))
    if not times and time_of(facts, chain) > 0:
        return use(
            f"Keep the data in bfloat16 (`x.to(torch.bfloat16)`): pointwise kernels on fp32 data take "
            f"{a_step(time_of(facts, chain))}, and would move half the bytes.",
            at_most(facts, chain, SIXTEEN_BIT_BYTES_SHARE),
            ("unfused-pointwise",),
        )
    if not times:
        known = bool(facts.kernels.modelled.any())
        return NoUse("there is no matmul in this step") if known else CannotTell(_MISSING)
    if next(iter(times)) == "fp64":
        return NoUse("autocast leaves fp64 matmuls as they are; move to fp32 first")
    return NoUse(f"the matmuls already run in {next(iter(times))}")


_MISSING = "what 16 bits would give is not known: the trace has no shapes (record_shapes=True)"


def _for_matmuls(facts: Facts, wide: float) -> Outcome:
    flops = facts.ceilings.flops
    narrow = next((name for name in ("bf16", "fp16") if name in flops), None)
    if narrow is None and on_cores(facts):
        return CannotTell("how fast this CPU multiplies 16-bit numbers is unknown: `findwall ceilings`")
    if not flops:
        return CannotTell("this GPU is not in the table, so it is not known how fast its 16-bit matmuls are")
    if narrow is None or flops[narrow] <= flops.get("fp32", 0.0):
        return NoUse(f"{facts.ceilings.device} is no faster in 16 bits")
    if not knows_floor(facts, _multiply_wide(facts)):
        return CannotTell(_MISSING)
    training = is_training(facts)
    dtype = "bfloat16" if narrow == "bf16" else "float16"
    scaler = (
        "no GradScaler is needed"
        if narrow == "bf16"
        else "add a GradScaler, because this GPU has no bfloat16"
    )
    return use(
        f"Run the {'forward pass and loss' if training else 'model'} under "
        f"`torch.autocast('{'cpu' if on_cores(facts) else 'cuda'}', dtype=torch.{dtype})`: {a_step(wide)} of "
        f"matmuls runs in {'fp32' if on_cores(facts) else 'fp32 or TF32'} today"
        f"{'; ' + scaler if training else ''}.{_layout_caveat(facts)}",
        _best(facts, narrow),
        likely=lambda made: _likely(facts, narrow, made),
    )


def _layout_caveat(facts: Facts) -> str:
    if not convolves(facts) or channels_last(facts):
        return ""
    return " Use channels-last with it: in NCHW, 16-bit images cost layout copies again."


def _best(facts: Facts, narrow: str) -> Change:
    """Matmuls at the 16-bit ceiling on half the bytes, and as much of everything else as autocast leaves: its
    kernels are the same in another type."""
    wide = _multiply_wide(facts)
    left = under_autocast(facts)
    rest = np.setdiff1d(np.flatnonzero(~of_class(facts, *MATRIX_CLASSES)), wide)
    return at_math(facts, wide, narrow, SIXTEEN_BIT_BYTES_SHARE) + to_floor(
        facts, rest, facts.atoms.own[rest] * left[rest]
    )


def _likely(facts: Facts, narrow: str, made: Made) -> Change:
    """Products as fast as they run in 16 bits, the rest on what autocast leaves of its bytes, and the casts
    that come with it: of each weight, forward and back, before the product that needs it."""
    wide = _multiply_wide(facts)
    layout = layout_with(facts, made)
    ns = products_ns(facts, wide, narrow, layout, SIXTEEN_BIT_BYTES_SHARE) + cast_ns(facts, wide)
    products = to_likely(facts, wide, ns)
    if "torch-compile" in made:  # which folds casts into its kernels, and knows how wide their values are
        return products
    rest = np.setdiff1d(np.flatnonzero(~of_class(facts, *MATRIX_CLASSES)), wide)
    casts = np.array(host_ns(facts, "autocast") / PRODUCTS_A_LAYER)
    more = Issue(np.unique(rows_of(facts, wide)), casts, besides=True)
    return products + to_likely(facts, rest, narrowed_ns(facts, rest, layout)) + Change((more,))


def _multiply_wide(facts: Facts) -> I64:
    formats = [MATH_TYPES.index(name) for name in WIDE_FORMATS]
    wide = np.isin(facts.kernels.math_index[facts.atoms.index], formats)
    found: I64 = np.flatnonzero(wide & of_class(facts, *MATRIX_CLASSES))
    return found


FIX = Fix(MOVES, "changes-numerics", advise, tried=2)
