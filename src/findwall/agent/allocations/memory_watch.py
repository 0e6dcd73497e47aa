"""What a job's memory does from the first step to the last, and the requests that fail in it."""

from __future__ import annotations

import contextlib
from time import perf_counter_ns
from typing import Any, Protocol

from findwall.agent.allocations.failed_requests import caught_failures, failed_request, trained_model
from findwall.agent.allocations.failure_claim import caught_claim, failure_claim
from findwall.agent.allocations.memory_totals import Totals
from findwall.agent.allocations.oom_observer import Failures, forget_failures, watch_failures
from findwall.machine.host_memory import resident
from findwall.model.answers.memory_answer import CaughtFailures, FailedModel, OutOfMemory
from findwall.model.claims import Claim
from findwall.model.measurement import Measurement
from findwall.units import ms

SPARE_BYTES = 16 << 20  # of addresses: what a list of all of Python's objects takes, and words that are made


class Recording(Protocol):
    """Of what the allocator does."""

    def end(self) -> None: ...

    def keep(self) -> None:
        """The job ends for want of memory."""


class MemoryWatch:
    """Of one process. Totals are asked on the thread that trains."""

    def __init__(self, torch: Any) -> None:
        self.totals = Totals()
        self.first_steps: Recording | None = None  # recorded, where memory is asked for
        self.failed: OutOfMemory | None = None  # that the job ended with
        self._torch = torch
        self._failures: Failures | None = None  # requests for memory, where that is watched
        # Never touched, so that it takes no memory, but room that a process with a limit has left at its end.
        self._spare: bytearray | None = bytearray(SPARE_BYTES)
        self._held_before = held.allocated if (held := resident()) is not None else 0  # by Python and torch
        self._failed_model: FailedModel | None = None  # what the job trained when it ended so
        self._caught: CaughtFailures | None = None  # requests that failed and that the job lived on after
        self._made = perf_counter_ns()

    def see_failures(self) -> None:
        """Requests that fail are noted from now on."""
        if self._failures is None:
            self._failures = watch_failures(self._torch)

    def stop_recording(self) -> None:
        if self.first_steps is not None:
            self.first_steps.end()

    def look(self, device: int | None, step: int, now: int) -> None:
        self.totals.look(self._torch, device, step, now - self._made)

    def forget_steps(self) -> None:
        self.totals = Totals()

    def job_ends(
        self, error: BaseException | None, device: int | None, step: int, record: Measurement
    ) -> None:
        """Of memory, or of something else."""
        began, self._spare = perf_counter_ns(), None
        with contextlib.suppress(Exception):  # the exception is any, and the device may be lost
            self.failed = failed_request(error, self._torch, self._failures, self.totals, step)
            if self.failed is not None:
                self._failed_model = trained_model(error, self._torch, self.failed)
                if self._failed_model is not None and self.failed.on_host:
                    self._failed_model.before = self._held_before
        with contextlib.suppress(Exception):  # as above
            # Only torch's own requests have a size; a driver's or a library's are counted nowhere.
            failed = self.failed
            ended = failed is not None and not failed.on_host and failed.asked_gib is not None
            self._caught = caught_failures(self._torch, device, self._failures, ended)
        forget_failures()
        if self.failed is not None and self.first_steps is not None:
            self.first_steps.keep()
        if self.failed is not None:
            record.cost["failure_ms"] = ms(perf_counter_ns() - began)

    def claims(self) -> list[Claim]:
        """What there is to say of requests that failed."""
        parts = [] if self.failed is None else failure_claim(self.failed).parts
        return [*parts, *([] if self._caught is None else [caught_claim(self._caught)])]

    def write_failures(self, record: Measurement) -> None:
        record.oom, record.failed_model, record.caught = self.failed, self._failed_model, self._caught

    def write(self, record: Measurement, device: int | None) -> None:
        self.write_failures(record)
        record.totals = self.totals.told(self._torch, device)
