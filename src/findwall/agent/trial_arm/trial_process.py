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

from findwall.agent.ending.runfolder import encode
from findwall.agent.membership import Membership
from findwall.agent.rank_messages import Told, applied_in_all
from findwall.agent.trial_arm.losses import Losses
from findwall.agent.trial_arm.outputs import Outputs
from findwall.agent.trial_arm.readback import ReadBack
from findwall.agent.trial_arm.samples import Samples
from findwall.agent.trial_arm.sweep_process import SweepProcess
from findwall.apply.registry import COMPARES, REGISTRY
from findwall.files import write_atomically
from findwall.model.arms import REPORT, SEED, ArmReport, Around
from findwall.model.machine import Telemetry
from findwall.units import NS_PER_MS

APART = 1_000_003  # between the seeds of two ranks: a job that sets none has other numbers in each


class TrialArm:
    """None of it is there in a job that is no part of a trial."""

    def __init__(self, report: Path, seed: int, rank: int = 0) -> None:
        self._report, self._seed, self._rank = report, seed, rank
        self._losses: Losses | None = None
        self._outputs: Outputs | None = None
        self._samples: Samples | None = None
        self._sweep = SweepProcess.of_environment()
        self._read_back = ReadBack.of_environment()

    @classmethod
    def of_environment(cls, rank: Membership) -> TrialArm | None:
        path = os.environ.get(REPORT)
        return cls(Path(path), int(os.environ.get(SEED, "0")), rank.rank) if path else None

    def torch_imported(self, torch: Any) -> None:
        """A job that sets its own seed does so after this: in an arm with another seed it gets another."""
        first = self._seed + APART * self._rank
        random.seed(first)
        torch.manual_seed(first)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(first)
        if self._seed:
            for home in (torch, torch.random):
                REGISTRY.wrap("trial seed", home, "manual_seed", self._shifted, past_end=COMPARES)
        self._losses = Losses(torch)
        self._outputs = Outputs(torch)
        self._samples = Samples(torch)
        if self._sweep is not None:
            self._sweep.torch_imported(torch)

    def _shifted(self, original: Callable[[int], Any]) -> Callable[[int], Any]:
        @functools.wraps(original)
        def manual_seed(seed: int) -> Any:
            return original(int(seed) + self._seed)

        return manual_seed

    def tell(self, ranks: list[Told]) -> None:
        """What the ranks tell, in their order, this one's first. The job is as fast as its slowest rank; the
        losses are this one's."""
        timed = [ns for ns in (told.measurement.steps.host_ns for told in ranks) if ns]
        means = [sum(ns) / len(ns) / NS_PER_MS for ns in timed]
        memory = [told.measurement.peak_memory for told in ranks]
        screening = ranks[0].measurement.screening
        if screening is not None:
            means = [plain_ms for one in screening.fixes for plain_ms, _ in one.pairs[:1]][:1]
        report = ArmReport(
            step_ms=max(means) if len(means) == len(ranks) else None,
            steps=min(map(len, timed), default=0),
            losses=self._losses.read() if self._losses is not None else [],
            outputs=self._outputs.read() if self._outputs is not None else [],
            peak_memory=max((one for one in memory if one is not None), default=None),
            applied=applied_in_all([told.applied for told in ranks]),
            draws=self._samples is not None and self._samples.draws,
            unseen=self._samples is not None and self._samples.unseen,
            read_back=self._read_back.paths if self._read_back is not None else [],
            order=self._samples.order if self._samples is not None else [],
            around=_around(ranks[0].measurement.telemetry),
            screening=screening,
            swept=self._sweep.told(ranks[0].measurement) if self._sweep is not None else None,
            fed=self._sweep.fed if self._sweep is not None else [],
        )
        write_atomically(self._report, encode(report), private=True)


def _around(said: Telemetry) -> Around:
    return Around(
        clock_mhz=said.sm_clock_mhz.mean if said.sm_clock_mhz is not None else None,
        neighbours=said.other_processes,
        others_busy=said.cpu.others_busy if said.cpu is not None else None,
    )
