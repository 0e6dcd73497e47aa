"""What a cause or a fix says of a job, in words."""

from __future__ import annotations

from typing import Protocol

from findwall.causes import Cause
from findwall.facts.facts import Facts
from findwall.model.claims import Claim, Evidence
from findwall.report.words import spoken


class Said(Protocol):
    """An outcome of a fix, a prescription or a refusal."""

    @property
    def claim(self) -> Claim | None: ...


def in_words(said: Cause | Said, facts: Facts | None = None) -> str:
    """The verdict of a cause on a job, or what a fix says."""
    if not isinstance(said, Cause):
        return spoken(said.claim)
    assert facts is not None
    return spoken(said.claim(facts))


def evidence_of(cause: Cause, facts: Facts) -> list[str]:
    """Its rows of evidence."""
    return texts(cause.evidence(facts))


def texts(rows: list[Evidence]) -> list[str]:
    return [row.text or spoken(row.claim) for row in rows]
