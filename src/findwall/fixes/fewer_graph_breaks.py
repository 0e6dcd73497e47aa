"""Keep the compiled region whole: no Python in it that the compiler has to leave for.

What it does:
At a print, an `.item()`, an unsupported library call or data-dependent control flow the compiler
ends one graph and starts another. Between them runs plain Python, nothing is fused across, and
every piece checks its guards again. `torch.compile(model, fullgraph=True)` raises an error at the
first break, and `TORCH_LOGS=graph_breaks` lists them all.

When it does not help:
The model is not compiled, or its graph has no breaks.

Risk:
None for the results. Code has to be rearranged.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.step_traits import is_compiled
from findwall.fixes import Fix, Outcome, Use, no_use
from findwall.model.claims import Claim

MOVES = ("graph-breaks",)


def advise(facts: Facts) -> Outcome:
    if not is_compiled(facts):
        return no_use("fewer-graph-breaks/not-compiled")
    spent = facts.spent_ms("graph-breaks")
    if spent <= 0:
        return no_use("fewer-graph-breaks/none")
    return Use(Claim("fewer-graph-breaks/fullgraph", {"lost_ms": spent}))


FIX = Fix(MOVES, "safe", advise)
