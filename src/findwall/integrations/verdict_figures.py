"""A verdict as the few numbers and words that an experiment tracker keeps beside a run."""

from __future__ import annotations

from findwall.model.catalogue import WALLS
from findwall.model.diagnosis import Diagnosis, Prescription

PREFIX = "findwall"  # under which trackers list them
UNKNOWN = "unknown"  # what of the step belongs to no wall


def numbers(diagnosis: Diagnosis) -> dict[str, float]:
    """The step, the share of every wall and what it could give back, MFU, the step of the fix to try first.

    What is unknown is left out, never 0. A wall gives back what its best cause does: causes of one wall may
    wait for the same thing, so their gains do not add up.
    """
    found = {"step_ms": diagnosis.step.ms, "mfu": diagnosis.mfu.mfu}
    if diagnosis.step.ms and diagnosis.budget:
        for wall in (*WALLS, UNKNOWN):
            rows = [row for row in diagnosis.budget if (row.wall or UNKNOWN) == wall]
            found[f"{wall}/share"] = sum(row.ms for row in rows) / diagnosis.step.ms
            gains = [row.recoverable_ms for row in rows if row.recoverable_ms is not None]
            found[f"{wall}/recoverable_ms"] = max(gains, default=None)
    best = best_fix(diagnosis)
    if best is not None:
        found |= {"best_fix/step_ms": best.step_ms.mid, "best_fix/speedup": best.speedup.mid}
    return {f"{PREFIX}/{name}": value for name, value in found.items() if value is not None}


def words(diagnosis: Diagnosis) -> dict[str, str]:
    """The wall and its cause, the sentence of the verdict, the fix to try first."""
    wall, best = diagnosis.wall, best_fix(diagnosis)
    found = {
        "verdict": wall.wall or "none",
        "cause": wall.cause,
        "sentence": wall.sentence,
        "best_fix": " + ".join(best.fixes) if best is not None else None,
    }
    return {f"{PREFIX}/{name}": text for name, text in found.items() if text}


def best_fix(diagnosis: Diagnosis) -> Prescription | None:
    """The fix to try first. Where its step is only bounded, it has no figure."""
    return next(iter(diagnosis.prescriptions), None)
