"""From a Run to its Diagnosis: establish the facts, decide, prescribe, write it all into the document."""

from __future__ import annotations

from findwall.examine.examination import examine, facts_of

__all__ = ["examine", "facts_of"]
