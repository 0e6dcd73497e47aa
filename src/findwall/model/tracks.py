"""What findwall found of a step, laid out in time: the tracks it adds to an exported trace."""

from __future__ import annotations

from typing import Any

import msgspec

EXPORT_SCHEMA = "findwall-trace/1"
EXPORT_MEMBER = "findwallTrace"  # of the file: by it `findwall read` knows that it is no recording

# Tracks by what they show.
BLAME = "blame"
WALLS = "walls"
FLOORS = "floors"
PATH = "critical path"
STREAM = "stream"


class OwnTrack(msgspec.Struct, frozen=True):
    """Slices in the order they begin; columns of one length. Times are ns from the first step's start."""

    kind: str
    label: str
    start: list[float]
    length: list[float]
    name: list[str]
    told: dict[str, list[Any]]  # what is shown of a slice besides, by name; None: not known


class OwnTracks(msgspec.Struct, frozen=True):
    """The counted steps as they are played without the profiler."""

    steps: int
    length: float  # ns, of all of them
    tracks: list[OwnTrack]
