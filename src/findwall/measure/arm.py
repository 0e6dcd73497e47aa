"""A process of a trial, from the inside: it starts from the seed it was given, notes its losses, and tells
all that the trial compares in the file it was given.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from findwall.files import write_atomically
from findwall.measure.losses import Losses
from findwall.measure.runfolder import encode
from findwall.model.applied import Applied
from findwall.model.arms import REPORT, SEED, ArmReport
from findwall.model.measurement import Measurement
from findwall.units import NS_PER_MS


class TrialArm:
    """None of it is there in a job that is no part of a trial."""

    def __init__(self, report: Path, seed: int) -> None:
        self._report, self._seed = report, seed
        self._losses: Losses | None = None

    @classmethod
    def of_environment(cls) -> TrialArm | None:
        path = os.environ.get(REPORT)
        return cls(Path(path), int(os.environ.get(SEED, "0"))) if path else None

    def torch_imported(self, torch: Any) -> None:
        """A job that sets its own seed does so after this: in an arm with another seed it gets another."""
        random.seed(self._seed)
        torch.manual_seed(self._seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(self._seed)
        if self._seed:
            torch.manual_seed = torch.random.manual_seed = self._shifted(torch.manual_seed)
        self._losses = Losses(torch)

    def _shifted(self, original: Callable[[int], Any]) -> Callable[[int], Any]:
        @functools.wraps(original)
        def manual_seed(seed: int) -> Any:
            return original(int(seed) + self._seed)

        return manual_seed

    def tell(self, record: Measurement, applied: Applied) -> None:
        timed = record.steps.host_ns
        losses = self._losses.read() if self._losses is not None else []
        told = ArmReport(
            step_ms=sum(timed) / len(timed) / NS_PER_MS if timed else None,
            steps=len(timed),
            losses=losses,
            peak_memory=record.peak_memory,
            applied=applied,
        )
        write_atomically(self._report, encode(told), private=True)
