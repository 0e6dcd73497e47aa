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
from findwall.attribute.figures import opening, told
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.units import format_ms, ms

CAUSE = "pipeline-bubble"


def evidence(facts: Facts) -> list[Evidence]:
    return [*_waits(facts), *kernel_evidence(facts, CAUSE)][:EVIDENCE_ROWS]


def _waits(facts: Facts) -> list[Evidence]:
    """Idle time in which another device of the process works."""
    _, spent = facts.idle_rows(CAUSE)
    if len(spent) == 0:
        return []
    total = ms(float(spent.sum()))
    stretches = len(spent) / facts.steps.count
    text = (
        f"{stretches:,.0f} stretches per step, {format_ms(total)} in all, "
        "with kernels queued and another device at work"
    )
    return [Evidence(text, ms=total)]


def sentence(facts: Facts) -> str:
    calls = len(facts.atoms.of(CAUSE)) / facts.steps.count
    if calls == 0 and len(facts.idle_rows(CAUSE)[0]):
        return told(
            facts,
            CAUSE,
            f"For {opening(facts, CAUSE)} this device has kernels queued but waits for another device of the "
            "process, because the parts of the model run one after the other",
            "split the batch into micro-batches so that the parts overlap, or give each device a whole copy",
        )
    if calls == 0:
        return (
            "It is unknown whether a stage waits for its neighbours: the trace names no send and no receive."
        )
    return told(
        facts,
        CAUSE,
        f"For {opening(facts, CAUSE)} this stage waits in {calls:,.0f} sends and receives because its "
        "neighbours have nothing ready for it",
        "use more micro-batches, an interleaved schedule or more even stages",
    )
