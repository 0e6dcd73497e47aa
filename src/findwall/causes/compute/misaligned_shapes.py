"""16-bit matmuls fall back to slow kernels because a dimension is not a multiple of 8.

What it finds:
Matmuls, convolutions and attention on 16-bit operands with a dimension that is not a multiple of 8,
whose kernel shows it: an unaligned or older kernel by name, or a rate far below the ceiling.

Why it costs:
Tensor cores load operands in pieces of 16 bytes. Rows that do not start on such a boundary force
the library to a kernel that loads element by element, often one written for an older generation.

How it is told apart:
Odd dimensions alone prove nothing, nor does "align1" in a name (fp32 kernels are always called so): both
must come together. With even dimensions the same slowness is slow-kernels; on fp32 data it is
fast-path-off.

What helps:
pad-shapes: make vocabulary, width, head size or batch a multiple of 64, or at least of 8 (a
vocabulary of 50257 becomes 50304; the extra rows are never used). torch-compile pads some matmuls by
itself, and copies their operands for it; so does reduce-overhead, the same with graphs around it. Where the
odd size is a sequence length that changes from batch to batch, pad to fixed lengths.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Figure, Told, carriers
from findwall.facts.op_shapes import odd_dims, padded

# Longest first: one dimension is shared by several matmuls. Chosen by hand, not calibrated.
CARRIERS_WITH_DIMS = 24
SIZES_NAMED = 3


def says(facts: Facts) -> Told:
    sizes: dict[str, Figure] = {}
    for at, size in enumerate(_odd_sizes(facts), 1):
        sizes |= {f"size{at}": size, f"padded{at}": padded(size)}
    return Told(Claim("misaligned-shapes/fall-back", sizes), Claim("advise/pad-shapes", sizes))


def _odd_sizes(facts: Facts) -> list[int]:
    """The dims to pad, by the time that goes to them."""
    cost: dict[int, float] = {}
    for carrier in carriers(facts, "misaligned-shapes", CARRIERS_WITH_DIMS):
        for size in odd_dims(facts, carrier.op_row):
            cost[size] = cost.get(size, 0.0) + carrier.ms
    return sorted(cost, key=lambda size: (-cost[size], size))[:SIZES_NAMED]


CAUSE = Cause("misaligned-shapes", says, reached="aligned")
