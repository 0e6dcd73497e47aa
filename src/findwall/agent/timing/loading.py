"""CPU time while the training thread makes batches: whether that computes, on how many threads, or waits."""

from __future__ import annotations

import threading
from time import process_time_ns, thread_time_ns

from msgspec.structs import replace

from findwall.model.machine import Telemetry

Look = tuple[int, int]  # CPU time so far: of all threads, of this one


class Loading:
    """What batches took while steps were timed. A look costs two calls of the system."""

    __slots__ = ("_process_ns", "_thread", "_thread_ns", "_wall_ns", "on")

    def __init__(self) -> None:
        self.on = False
        self._thread = self._wall_ns = self._process_ns = self._thread_ns = 0

    def start(self) -> None:
        """Of the steps of the calling thread, from now on."""
        self._wall_ns = self._process_ns = self._thread_ns = 0
        self._thread, self.on = threading.get_ident(), True

    def look(self) -> Look | None:
        """None where another thread takes batches: what it waits for is none of the step."""
        return (process_time_ns(), thread_time_ns()) if threading.get_ident() == self._thread else None

    def add(self, before: Look, spent_ns: int) -> None:
        self._wall_ns += spent_ns
        self._process_ns += process_time_ns() - before[0]
        self._thread_ns += thread_time_ns() - before[1]

    def stop(self, telemetry: Telemetry) -> Telemetry:
        """Beside who kept the cores busy, where somebody counted that and batches took any time."""
        self.on = False
        cpu = telemetry.cpu
        if cpu is None or self._wall_ns <= 0:
            return telemetry
        busy, own = self._process_ns / self._wall_ns, self._thread_ns / self._wall_ns
        return replace(telemetry, cpu=replace(cpu, loading_busy=busy, loading_own=min(own, 1.0)))
