"""The small series that are drawn beside the Diagnosis: steps in order, one step event by event."""

from __future__ import annotations

from findwall.examine.series.gather import gather

__all__ = ["gather"]
