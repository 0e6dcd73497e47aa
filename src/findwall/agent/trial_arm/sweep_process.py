"""A process of a sweep, from the inside: the job's training loader gives batches of another size, and the
process tells what a step took then, and what memory.
"""

from __future__ import annotations

import os
from statistics import mean, median, quantiles
from typing import Any

import msgspec

from findwall.agent.stages.timing_stages import TIMED_AT_LEAST_STEPS
from findwall.agent.timing.step_peaks import StepPeaks
from findwall.apply.swept_loaders import SweptLoaders
from findwall.model.arms import SWEEP, FedLoader, Peaks, Swept, Varied
from findwall.model.measurement import Measurement
from findwall.units import ms


class SweepProcess:
    """None of it is there in a process that is no part of a sweep."""

    def __init__(self, varied: Varied) -> None:
        self._varied = varied
        self._loaders: SweptLoaders | None = None
        self._peaks: StepPeaks | None = None

    @classmethod
    def of_environment(cls) -> SweepProcess | None:
        given = os.environ.get(SWEEP)
        return cls(msgspec.json.decode(given, type=Varied)) if given else None

    def torch_imported(self, torch: Any) -> None:
        self._peaks = StepPeaks(torch)
        self._loaders = SweptLoaders(torch, self._varied, self._peaks.first_batch)

    @property
    def fed(self) -> list[FedLoader]:
        return self._loaders.feeding if self._loaders is not None else []

    def told(self, measured: Measurement) -> Swept | None:
        """None where no step was timed."""
        steps = measured.steps
        plain = [row for row, other in enumerate(steps.evaluated) if not other]
        times = [ms(ns) for ns in steps.times(plain or None)]
        if not times:
            return None
        ends = quantiles(times, n=10, method="inclusive") if len(times) > 1 else times
        taken = [steps.batches[row] for row in plain] or steps.batches
        return Swept(
            mean_ms=mean(times),
            low_ms=ends[0],
            high_ms=ends[-1],
            steps=len(times),
            is_enough=len(times) >= TIMED_AT_LEAST_STEPS,
            batches=median(taken) or None,
            peaks=self._peaks.told(measured) if self._peaks is not None else Peaks(),
            fed=self._loaders.fed if self._loaders is not None else [],
        )
