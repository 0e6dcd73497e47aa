"""From a Run to its Diagnosis: establish the facts, decide, prescribe, write it all into the document."""

from __future__ import annotations

from findwall.examine.examination import Examined, examine, facts_of, look_into

__all__ = ["Examined", "examine", "facts_of", "look_into"]
