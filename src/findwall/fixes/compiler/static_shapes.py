"""Keep shapes fixed, or declare them dynamic, so that nothing is compiled or set up again.

What it does:
torch.compile specialises on the shapes it sees. Each new sequence length then costs seconds of
compilation in the middle of training. Libraries prepare themselves for a shape too: cuDNN attention
builds a plan for every new length. Pad lengths to a few sizes, drop the last short batch
(`drop_last=True`), or tell the compiler which dimension changes: `torch._dynamo.mark_dynamic(x, 1)`
or `torch.compile(model, dynamic=True)`. For attention another backend needs no plan:
`with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)`.

When it does not help:
Nothing is compiled or set up during the step. `TORCH_LOGS=recompiles` names the guard that failed: it may be
a Python number or flag that changes, not a shape.

Risk:
Padding computes what is thrown away and must be masked. Dynamic kernels can be a little slower than
specialised ones.
"""

from __future__ import annotations

import re

from findwall.facts.waits import compiling, set_ups
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    free_launches,
    ideal,
    range_names,
    takes_nothing,
    unless,
)
from findwall.replay.calibrate import FASTEST_PACE
from findwall.replay.change import Change, HostWork
from findwall.replay.graph import LAUNCHING

MOVES = ("recompilation", "unstable-steps")
PACE_BEHIND_SET_UP = 0.8
_COMPILE_ID = re.compile(r"compile_id=(\d+/\d+)")


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("recompilation")
    prepared, compiled = set_ups(facts), compiling(facts)
    if sum(one.ms for one in prepared) > sum(one.ms for one in compiled):
        first = prepared[0]
        # Behind set-up the host is slower for a while: where shapes came back, launches took 0.8 of it in two
        # jobs on an H200. The bound takes the fastest pace that any host is given.
        return Use(
            Claim("static-shapes/bucket", {"shapes": first.shapes, "set_up_ms": spent}, {"op": first.op}),
            ideal(facts, *MOVES) + Change((HostWork(LAUNCHING, FASTEST_PACE),)),
            likely=lambda made: ideal(facts, *MOVES) + Change((HostWork(LAUNCHING, PACE_BEHIND_SET_UP),)),
            uncurved=True,
        )
    again = {found[1] for name in range_names(facts) if (found := _COMPILE_ID.search(name))}
    figures = {
        "compiling_ms": spent,
        "compilations": len(again),
        "functions": len({one.split("/")[0] for one in again}),
    }
    # Nothing is compiled. What else the host does here cannot be told from the compiler's own Python, nor
    # whose objects are collected.
    uncompiled = ideal(facts, *MOVES, "host-work", "graph-breaks", "gc-pause")
    return Use(
        Claim("static-shapes/dynamic", figures),
        uncompiled + free_launches(facts),
        likely=lambda made: uncompiled,
        uncurved=True,
    )


FIX = Fix(MOVES, "safe", use, (unless("static-shapes/none", takes_nothing("recompilation")),))
