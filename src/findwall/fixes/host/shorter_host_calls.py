"""Have a long call on the host do less, or do it beside the step.

What it does:
A single call of a routine in C, as NumPy's, a tokeniser's or a parser's, can take longer than all ops of the
step. There is no loop to be replaced. What is left is to give it less to do, or to do it at another time:

- fewer numbers: of those a step needs, not of all there are (a sample, a slice, what has changed);
- less often: what is the same from step to step is kept, and put right where it changes;
- beside the step: a DataLoader's worker, a process or, where the routine lets go of the interpreter, a thread
  does it for the next step while this one runs.

When it does not help:
The line stands in a loop, which calls for ops on whole arrays: vectorise-loop. Or the call waits for a file
or a socket: move-io-off-step.

Risk:
What is kept must be renewed wherever it changes, and what is done ahead of a step does not see what that step
changes: priorities, weights, statistics.
"""

from __future__ import annotations

from findwall.facts.user_lines import long_calls
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gain_ms, ideal, no_use, step_ms
from findwall.model.catalogue import MENTION_SHARE


def use(facts: Facts) -> Outcome:
    if gain_ms(facts, "host-work") <= MENTION_SHARE * step_ms(facts):
        return no_use("shorter-host-calls/none")
    found = long_calls(facts)
    if not found:
        return no_use("shorter-host-calls/unseen")
    calls = [Claim("call/of", {"ms": one.ms}, {"function": one.function}, [one.place]) for one in found]
    return Use(Claim("shorter-host-calls/at", parts=calls), ideal(facts, "host-work"))


FIX = Fix(("host-work",), "needs-review", use, of_anything=True)
