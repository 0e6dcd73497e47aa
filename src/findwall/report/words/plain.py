"""A claim that is still text keeps its words."""

from __future__ import annotations

from findwall.model.claims import TEXT
from findwall.report.words import Words

WORDS: dict[str, Words] = {TEXT: "{text}"}
