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
from findwall.attribute.figures import a_step
from findwall.attribute.job import is_compiled
from findwall.fixes import Fix, NoUse, Outcome, use

MOVES = ("graph-breaks",)


def advise(facts: Facts) -> Outcome:
    if not is_compiled(facts):
        return NoUse("nothing is compiled here, so no graph can break")
    spent = facts.spent_ms("graph-breaks")
    if spent <= 0:
        return NoUse("no time is lost between compiled pieces")
    return use(
        "Use `torch.compile(model, fullgraph=True)` to stop at the first break (`TORCH_LOGS=graph_breaks` "
        f"lists them all): {a_step(spent)} is lost between compiled pieces."
    )


FIX = Fix(MOVES, "safe", advise)
