"""Host-to-device copies run with nothing beside them, or block the host.

What it finds:
Copies to the device that no kernel overlaps, and the idle time that blocking ones leave behind.

Why it costs:
Ordinary (pageable) memory is first copied to a staging buffer, at the host's pace, and the call blocks
until that is done: the queue drains meanwhile. Even a fast copy is added to the step unless it runs beside
the previous step's work.

How it is told apart:
By direction and by the counterfactual: gaps that would not be there without the blocking copy are its
fault, though they look like launch gaps. Copies back to the host are host-sync.

What helps:
pin-memory (pin_memory=True in the loader and .to(device, non_blocking=True)), non-blocking-copy where the
memory is pinned already, prefetch-batches (copy the next batch on its own stream), narrow-copies (send uint8
images and convert on the device), make-on-device (what the host draws or fills only to copy it), data kept on
the device when it is small.
"""

from __future__ import annotations

from findwall.causes import (
    EVIDENCE_ROWS,
    Cause,
    Claim,
    Evidence,
    Facts,
    Figure,
    Told,
    Wait,
    carriers,
    lines,
    wait_evidence,
    waits,
)
from findwall.facts.cause_kernels import Carrier, as_evidence
from findwall.step.call_names import blocking_rows
from findwall.units import NS_PER_S
from findwall.work.work_facts import WorkFacts

NAME = "copy-exposed"
ALL_COPIES = 1000  # kernel, op and shapes told apart: meant to leave none out


def shows(facts: Facts) -> list[Evidence]:
    return _copies(facts) + wait_evidence(_calls(facts))


def says(facts: Facts) -> Told:
    copies = carriers(facts, NAME, ALL_COPIES)
    pageable = any("pageable" in carrier.kernel.lower() for carrier in copies)
    figures: dict[str, Figure] = {"moved_bytes": sum(_bytes(facts, one) for one in copies) or None}
    if pageable:
        figures["memory"] = "pageable"
    places = lines(next((wait.line for wait in _calls(facts) if wait.line), None))
    pins = pageable and "pin-memory" not in facts.refused
    action = Claim("advise/pin-memory" if pins else "advise/prefetch-batches")
    return Told(Claim("copy-exposed/copies", figures, places=places), action)


def _copies(facts: Facts) -> list[Evidence]:
    return [
        as_evidence(
            facts,
            carrier,
            "evidence/copy",
            {
                "calls": carrier.calls,
                "ms": carrier.ms,
                "moved_bytes": _bytes(facts, carrier) or None,
                "rate_gbps": _rate(facts, carrier),
            },
        )
        for carrier in carriers(facts, NAME, EVIDENCE_ROWS - 1)
    ]


def _bytes(facts: WorkFacts, carrier: Carrier) -> float:
    """Bytes a step: those of the longest copy, for each of its calls. 0 where not recorded."""
    row = int(facts.kernels.row[facts.atoms.index[carrier.atom]])
    return max(float(facts.timeline.events.nbytes[row]), 0.0) * carrier.calls


def _rate(facts: WorkFacts, carrier: Carrier) -> float | None:
    row = int(facts.kernels.row[facts.atoms.index[carrier.atom]])
    nbytes, length = int(facts.timeline.events.nbytes[row]), int(facts.timeline.events.duration[row])
    return nbytes / (length / NS_PER_S) / 1e9 if nbytes > 0 and length > 0 else None


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, NAME, blocking_rows(facts, NAME))


CAUSE = Cause(NAME, says, shows, kernels=False)
