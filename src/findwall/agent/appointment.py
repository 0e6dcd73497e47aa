"""Several ranks that are to be stopped end at the same step: one that none of them has reached yet.

Collectives keep ranks within a step of each other, so a step a little ahead of the one that speaks is ahead
of all. It is written into the run folder, which they share.
"""

from __future__ import annotations

from pathlib import Path

from findwall.files import write_atomically

STOP_FILE = "stop"
STEPS_AHEAD = 16


class Appointment:
    def __init__(self, folder: Path) -> None:
        self._file = folder / STOP_FILE
        self._step: int | None = None

    def make(self, step: int) -> None:
        """The rank that speaks, at this step, has its verdict."""
        write_atomically(self._file, str(step + STEPS_AHEAD).encode())

    def is_due(self, step: int) -> bool:
        if self._step is None and self._file.exists():
            self._step = int(self._file.read_text())
        return self._step is not None and step >= self._step
