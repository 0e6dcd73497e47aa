"""The words of what is prescribed together, what is not worth it, and what a person asked about."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, spoken
from findwall.units import format_interval


def _together(claim: Claim) -> str:
    return f"Make {listed(map(spoken, claim.parts))} together."


def _trial(said: str) -> Words:
    def words(claim: Claim) -> str:
        between = format_interval(number(claim, "low_ms"), number(claim, "high_ms"))
        template = (
            "worth a trial only{said}: a step of {mid_ms:ms} ({between}) is predicted, {step_ms:ms} today"
        )
        return fill(template, claim, said=said, between=between)

    return words


WORDS: dict[str, Words] = {
    "prescribed/together": _together,
    "refused/trial": _trial(""),
    "refused/likely-slower": _trial(", likely slower"),
    "refused/no-gain": _trial(", next to no gain"),
    "refused/little": "it saves up to {saves_ms:ms} of the {step_ms:ms} step, by removing {cause}",
    "refused/nothing": "it saves nothing: with all done that it could do, the step stays at {step_ms:ms}",
    "refused/another-wall": (
        "it saves nothing while another wall stands: removing {cause} alone leaves the step at {step_ms:ms}"
    ),
    "what-if/of-fix": "{fix}: {parts[0]}",
    "what-if/without-floors": "nobody can tell what it gives because {parts[0]}",
    "what-if/bound-only": "nobody can tell what it gives, only its bound is known",
}
