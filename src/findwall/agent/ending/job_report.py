"""What a process tells beside its measurement: what fixes did in it, what it wrote, what a trial asks."""

from __future__ import annotations

import time
from math import inf
from typing import Any

from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.ending.writes import Writes
from findwall.agent.membership import Membership
from findwall.agent.parsers.parsers_seen import ParsersSeen
from findwall.agent.rank_messages import LOOK_S, Told, told_by_others
from findwall.agent.trial_arm.trial_process import TrialArm
from findwall.apply.applying import Effects
from findwall.apply.job_state import seen_job
from findwall.apply.live_fixes import LiveFixes
from findwall.model.measurement import Measurement


class JobReport:
    def __init__(self, rank: Membership, effects: Effects | None) -> None:
        self._rank, self._effects = rank, effects or Effects({})
        self._arm = TrialArm.of_environment(rank)
        self._writes = Writes.of_environment() if rank.speaks else None
        self._parsers = ParsersSeen.of_environment() if rank.speaks else None
        self._look_again = 0.0  # at what the other ranks tell

    @property
    def live(self) -> LiveFixes:
        """What is screened in this process."""
        return LiveFixes(self._effects.live, self._effects.numbers)

    def torch_imported(self, torch: Any) -> None:
        if self._effects.live:
            seen_job(torch)
        if self._arm is not None:
            self._arm.torch_imported(torch)
        self._effects.install(torch)

    def write(self, folder: RunFolder) -> None:
        """What fixes that were made without an edit did, and what the job wrote and which options it has,
        where that is asked for: once all is measured, and when the job ends."""
        if self._writes is not None:
            folder.write_writes(self._writes)
        if self._parsers is not None:
            folder.write_options(self._parsers.options)
        if self._effects.names:
            folder.write_applied(self._effects.told())

    def tell_trial(self, folder: RunFolder, record: Measurement, wait_s: float = 0.0) -> None:
        """What a trial asks for, by the rank that speaks; `wait_s`: for the others to have told it theirs."""
        if self._arm is None or not self._rank.speaks:
            return
        others = told_by_others(folder.path, self._rank.world_size, wait_s)
        if others is not None:
            self._arm.tell([Told(record, self._effects.told()), *others])

    def all_measured(self, folder: RunFolder) -> bool:
        """Whether all ranks have told what they measured; said once, by the one that speaks."""
        now = time.monotonic()
        if not self._rank.speaks or now < self._look_again:
            return False
        waits = told_by_others(folder.path, self._rank.world_size) is None
        self._look_again = now + LOOK_S if waits else inf
        return not waits
