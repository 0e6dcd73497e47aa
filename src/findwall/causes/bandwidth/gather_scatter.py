"""Rows are fetched from or added to scattered places in memory.

What it finds:
Index, gather, scatter and embedding kernels, forward and backward.

Why it costs:
Neighbouring threads that read neighbouring addresses share memory transactions; scattered ones do not,
so much of what DRAM delivers is thrown away. Adding to rows that occur twice needs atomics, which wait
for each other.

How it is told apart:
By the kernel's class. Its floor is the bytes that must move once; the rest is what scattering costs. Kernels
that sort or select (median, top-k) neither gather nor scatter: far below the memory's speed they are
slow-kernels.

What helps:
torch-compile (rows that are fetched and added up at once are never written in between; on an H200 message
passing took 12 ms of 55; reduce-overhead is the same with graphs around it), index-select (where the backward
of `x[idx]` sorts and adds one row after the other), sorted-index (sort edges or ids so that neighbours are
fetched together), unique ids before a lookup, segment reductions instead of scatter_add, embedding_bag
instead of embedding and sum, where-not-mask (zeros where `x[mask]` is only summed), debug-off
(deterministic algorithms sort first), custom-kernels.
On a CPU small ops of a loop take their time themselves: vectorise-loop, foreach-checks, averages-in-lists.
On a CPU large tensors may go back to the system and come again: keep-freed-memory.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Facts, Told, carrying
from findwall.facts.cause_kernels import reads_wide_rows


def says(facts: Facts) -> Told:
    # Wide rows cost the same in any order.
    ways = [] if reads_wide_rows(facts) else [Claim("advise/sorted-index")]
    ways += [] if "torch-compile" in facts.refused else [Claim("advise/torch-compile/it")]
    fact = Claim("gather-scatter/misses", names=carrying(facts, "gather-scatter"))
    return Told(fact, Claim("gather-scatter/ways", parts=ways))


CAUSE = Cause("gather-scatter", says, reached="memory")
