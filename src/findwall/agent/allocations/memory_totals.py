"""What the job holds, asked at ends of steps: at most once a second, and ever more seldom in a long run.

Always on the thread that trains. The allocator's lock may be held by one that waits for Python's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from findwall.machine import torch_device as machine
from findwall.model.machine import MemoryTotals

PERIOD_NS = 1_000_000_000
MOST_LOOKS = 512  # then every second one goes; chosen by hand
NEVER = 1 << 63
UNASKED = ("trace", "observe", "snapshot")  # stages that it would be recorded in


class Totals:
    """Nothing of the job's is touched: its peak is what it makes of it, ours is the highest that was seen."""

    def __init__(self) -> None:
        self.columns = MemoryTotals()
        self._device: int | None = None
        self._period, self._next = PERIOD_NS, 0

    def look(self, torch: Any, device: int | None, step: int, ns: int) -> None:
        """`ns`: since findwall saw torch."""
        if ns < self._next:
            return
        self._next = ns + self._period
        try:
            held = machine.memory_totals(torch, device)
        except Exception:  # noqa: BLE001 - an allocator of the job's own: the measurement goes on without it
            held = None
        if held is None:
            self._next = NEVER
            return
        if device != self._device:  # its first steps may have computed elsewhere
            self._device, self.columns = device, MemoryTotals()
        columns = self.columns
        columns.step.append(step)
        columns.ns.append(ns)
        columns.allocated.append(held.allocated)
        columns.reserved.append(held.reserved)
        columns.peak = max(held.peak, columns.peak or 0)
        if len(columns.step) > MOST_LOOKS:
            self._thin()
            self._next = ns + self._period

    def _thin(self) -> None:
        self._period *= 2
        for column in (
            self.columns.step,
            self.columns.ns,
            self.columns.allocated,
            self.columns.reserved,
        ):
            column[:] = column[::2]

    def told(self, torch: Any, device: int | None) -> MemoryTotals:
        """With what it could hold in the end."""
        if self.columns.step and self.columns.limit is None:
            with suppress(Exception):  # as above
                self.columns.limit = machine.memory_limit(torch, device)
        return self.columns
