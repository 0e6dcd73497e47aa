"""The ranks of a job on its page: the lines of the terminal, never a line a rank."""

from __future__ import annotations

from findwall.model.diagnosis import Diagnosis
from findwall.report.page.markup import Markup, listed, section
from findwall.report.texts import ranks_text

RANKS_PART = ("ranks", "Ranks")


def ranks_together(diagnosis: Diagnosis) -> Markup | None:
    told = [f"{label}: {text}" for label, text in ranks_text.facts(diagnosis.ranks)]
    return section(*RANKS_PART, listed(told)) if told else None
