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

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.facts import Facts
from findwall.attribute.figures import amounts, told
from findwall.model.claims import Claim
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.units import ms

CAUSE = "pipeline-bubble"


def evidence(facts: Facts) -> list[Evidence]:
    return [*_waits(facts), *kernel_evidence(facts, CAUSE)][:EVIDENCE_ROWS]


def _waits(facts: Facts) -> list[Evidence]:
    """Idle time in which another device of the process works."""
    _, spent = facts.idle_rows(CAUSE)
    if len(spent) == 0:
        return []
    total = ms(float(spent.sum()))
    figures = {"stretches": len(spent) / facts.steps.count, "waits_ms": total}
    return [Evidence(ms=total, claim=Claim("evidence/stretches", {**figures}))]


def claim(facts: Facts) -> Claim:
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    figures = amounts(facts, CAUSE)
    if calls == 0 and len(facts.idle_rows(CAUSE)[0]):
        fact = Claim("pipeline-bubble/devices", figures)
        return told(facts, CAUSE, fact, Claim("advise/more-microbatches/devices"))
    if calls == 0:
        return Claim("pipeline-bubble/unknown")
    fact = Claim("pipeline-bubble/stages", {**figures, "messages": calls})
    return told(facts, CAUSE, fact, Claim("advise/more-microbatches"))
