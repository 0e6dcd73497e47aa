"""A pipeline stage waits for the one before or after it.

What it finds:
Exposed sends and receives between ranks, and time in which kernels are queued but wait for another
device of the same process: this stage has no micro-batch to work on.

Why it costs:
With p stages and m micro-batches a share of about (p - 1) / (m + p - 1) of the time is filling and
draining, and uneven stages add to it.

How it is told apart:
By the op or metadata that says send or receive. A kernel called SendRecv proves nothing: all-to-all uses
the same one. Collectives of all ranks are exposed-collective.

What helps:
more-microbatches, an interleaved or zero-bubble schedule, even stages (balance-ranks), asynchronous sends.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Told
from findwall.units import ms

NAME = "pipeline-bubble"


def shows(facts: Facts) -> list[Evidence]:
    """Idle time in which another device of the process works."""
    _, spent = facts.idle_rows(NAME)
    if len(spent) == 0:
        return []
    total = ms(float(spent.sum()))
    figures = {"stretches": len(spent) / facts.steps.count, "waits_ms": total}
    return [Evidence(ms=total, claim=Claim("evidence/stretches", figures))]


def says(facts: Facts) -> Told | Claim:
    calls = len(facts.atoms.of(NAME)) / facts.steps.count
    if calls:
        return Told(Claim("pipeline-bubble/stages", {"messages": calls}), Claim("advise/more-microbatches"))
    if len(facts.idle_rows(NAME)[0]):
        return Told(Claim("pipeline-bubble/devices"), Claim("advise/more-microbatches/devices"))
    return Claim("pipeline-bubble/unknown")


CAUSE = Cause(NAME, says, shows)
