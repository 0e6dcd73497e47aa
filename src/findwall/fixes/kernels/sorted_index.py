"""Give gathers and scatters an order: sorted, grouped or unique indices.

What it does:
A gather of scattered rows reads whole sectors of memory for a few bytes each, and a scatter that
adds into the same rows waits for atomics. Sort edges or ids once, so that neighbours in memory are
used together; sum sorted segments (`torch.segment_reduce`, a CSR matrix product) instead of
`index_add_`; make rows a multiple of 32 bytes; deduplicate lookups (`unique`, then gather).

When it does not help:
Rows are wide and read once: then the traffic is needed. Sorting alone does little where atomics
were not the bottleneck; measure it.

Risk:
Sums in another order differ in the last bits. Sorting costs time: do it once, not every step.
"""

from __future__ import annotations

from findwall.facts.cause_kernels import ops_named, reads_wide_rows
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, takes_nothing, unless
from findwall.replay.change import Change


def use(facts: Facts) -> Outcome:
    figures = {"spent_ms": facts.spent_ms("gather-scatter")}
    return Use(
        Claim("sorted-index/sort", figures, {"ops": ops_named(facts, "gather-scatter")}),
        # Wide rows use all that memory hands over in any order: sorted ones of 64 numbers took 0.99 of the
        # time on an H200. What narrow ones gain nobody can tell.
        likely=(lambda made: Change()) if reads_wide_rows(facts) else None,
    )


FIX = Fix(
    ("gather-scatter",),
    "changes-numerics",
    use,
    (unless("sorted-index/none", takes_nothing("gather-scatter")),),
)
