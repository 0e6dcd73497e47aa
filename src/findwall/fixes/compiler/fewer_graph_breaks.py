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

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, is_compiled, takes_nothing, unless


def use(facts: Facts) -> Outcome:
    return Use(Claim("fewer-graph-breaks/fullgraph", {"lost_ms": facts.spent_ms("graph-breaks")}))


FIX = Fix(
    ("graph-breaks",),
    "safe",
    use,
    (
        unless("fewer-graph-breaks/not-compiled", lambda facts: not is_compiled(facts)),
        unless("fewer-graph-breaks/none", takes_nothing("graph-breaks")),
    ),
)
