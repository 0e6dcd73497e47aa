"""What a cause says of a job, in words."""

from __future__ import annotations

from types import ModuleType

from findwall.attribute.facts import Facts
from findwall.model.diagnosis import Evidence
from findwall.report.words import spoken


def in_words(cause: ModuleType, facts: Facts) -> str:
    """The verdict of a cause's file."""
    return spoken(cause.claim(facts))


def evidence_of(cause: ModuleType, facts: Facts) -> list[str]:
    """Its rows of evidence."""
    return texts(cause.evidence(facts))


def texts(rows: list[Evidence]) -> list[str]:
    return [row.text or spoken(row.claim) for row in rows]
