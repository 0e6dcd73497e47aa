"""Every export that somebody might put in a person's way, tried."""

from __future__ import annotations

from pathlib import Path

from soak import hostile_rows, hostile_tables  # noqa: F401 - they add theirs
from soak.exports import HOSTILE, answered, sound
from soak.hang import hang_guard

# Generous: the slowest took seven seconds on a machine with two busy cores.
ANSWER_S = 60.0


def read_hostile(name: str, folder: Path) -> str:
    path = sound(folder / "export.sqlite")
    given = HOSTILE[name](path) or path
    with hang_guard(ANSWER_S):
        return answered(given)
