"""The small series that are drawn beside the Diagnosis: steps in order, one step event by event."""

from __future__ import annotations

from findwall.examine.series.gather import gather
from findwall.examine.series.own_tracks import own_tracks

__all__ = ["gather", "own_tracks"]
