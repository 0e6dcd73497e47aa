"""Fixes in short phrases: the step they give, what that rests on, and what they ask of a person."""

from __future__ import annotations

from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, NotWorthIt, Prescription
from findwall.report.printable_names import clean
from findwall.units import format_interval, format_ms

NOTED_DIFFERENCE = 0.02  # of the step: times closer than that are given once, without an interval
SAFETY = {"safe": "", "changes-numerics": "changes numerics", "needs-review": "needs review"}
SAFETY_MEANS = {
    "changes-numerics": "changes numerics: results round differently, so compare losses",
    "needs-review": "needs review: it may change what the job does, so check it",
}
RESTS_ON = {
    "probed": "from its ops, run on this device as the fix would run them",
    "curves": "from curves of such ops, measured on an H200",
    "replay": "by replaying the trace without what it removes",
}


def is_wide(low: float | None, high: float | None) -> bool:
    """Whether an interval says more than its middle does."""
    return low is not None and high is not None and high - low > NOTED_DIFFERENCE * max(high, 1e-9)


def gain(prescription: Prescription) -> str:
    """The step time a fix could give, as far as that is known, and what it asks of a person."""
    probed = "probed" if prescription.basis == "probed" else ""
    parts = [step_after(prescription.step_ms), probed, SAFETY[prescription.safety]]
    return ", ".join(part for part in parts if part)


def advised(diagnosis: Diagnosis) -> str:
    """What to call the fixes: whether they help nobody knows without a verdict."""
    return "What helps" if diagnosis.wall.cause or not diagnosis.prescriptions else "Worth a trial"


def safety(prescriptions: list[Prescription]) -> str:
    """What the warnings beside these fixes mean."""
    found = {item.safety for item in prescriptions}
    return "; ".join(text for kind, text in SAFETY_MEANS.items() if kind in found)


def basis(prescriptions: list[Prescription]) -> str:
    """What the predicted steps of these fixes rest on."""
    names: dict[str, list[str]] = {}
    for item in prescriptions:
        if item.basis is not None and item.step_ms.mid is not None:
            names.setdefault(item.basis, []).append(clean(" + ".join(item.fixes)))
    if len(names) == 1:
        return f"predicted {RESTS_ON[next(iter(names))]}"
    return "; ".join(f"{' and '.join(fixes)} predicted {RESTS_ON[kind]}" for kind, fixes in names.items())


def step_after(step_ms: Range) -> str:
    """The step that a fix gives, as far as that is known: a figure with its ends, or a bound."""
    if step_ms.mid is not None:
        ends = (
            f" ({format_interval(step_ms.low, step_ms.high)})" if is_wide(step_ms.low, step_ms.high) else ""
        )
        return f"about {format_ms(step_ms.mid)}{ends}"
    return f"a step of {format_ms(step_ms.low)} at best" if step_ms.low is not None else ""


def refused(diagnosis: Diagnosis) -> list[NotWorthIt]:
    """What will not help, without what nobody would have tried here."""
    return [item for item in diagnosis.not_worth_it if not item.obvious]


def what_if(diagnosis: Diagnosis) -> list[str]:
    """What a person asked about, and what of it does not apply."""
    asked = diagnosis.what_if
    if asked is None:
        return []
    faster = f", {asked.speedup.mid:.2f}×" if asked.speedup.mid is not None else ""
    said = step_after(asked.step_ms) or "the step is not known"
    return [f"{clean(asked.asked)}: {said}{faster}", *(clean(note) for note in asked.notes)]


def road(diagnosis: Diagnosis) -> str:
    """Today's step, the one after the best fixes, the one at the roofline; empty without a prediction."""
    stops = []
    for stop in diagnosis.road:
        if stop.what == "today":
            stops.append(f"{format_ms(stop.step_ms.mid)} today")
        elif stop.what == "predicted":
            then = f" (then {clean(stop.cause)})" if stop.cause else ""
            stops.append(f"{step_after(stop.step_ms)} with {clean(' + '.join(stop.fixes))}{then}")
        else:
            stops.append(f"{format_ms(stop.step_ms.mid)} at the roofline")
    return " → ".join(stops)
