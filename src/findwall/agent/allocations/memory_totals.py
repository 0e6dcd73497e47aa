"""What the job holds, asked at ends of steps: at most once a second, and ever more seldom in a long run.

At a few of the first steps it is asked besides, whatever the time: a job may run out of memory within a
second. Only what is said of that reads them.

Always on the thread that trains. The allocator's lock may be held by one that waits for Python's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from findwall.machine import torch_device as machine
from findwall.model.machine import Holding, MemoryTotals

PERIOD_NS = 1_000_000_000
MOST_LOOKS = 512  # then every second one goes; chosen by hand
NEVER = 1 << 63
LAST_EARLY_STEP = 64  # from the second on, each time after twice as many: six looks, a millisecond in all
UNASKED = ("trace", "observe", "snapshot")  # stages that it would be recorded in


class Totals:
    """Nothing of the job's is touched: its peak is what it makes of it, ours is the highest that was seen."""

    def __init__(self) -> None:
        self.columns = MemoryTotals()
        self.early: list[tuple[int, int]] = []  # steps, and what was allocated at their end
        self._nodes: tuple[int, int] | None = None  # a step, and how many nodes of graphs were made by then
        self._device: int | None = None
        self._period, self._next = PERIOD_NS, 0
        self._early_step = 2  # what comes late, such as an optimizer's state, is there then

    def look(self, torch: Any, device: int | None, step: int, ns: int) -> None:
        """`ns`: since findwall saw torch."""
        is_due, is_early = ns >= self._next, self._early_step <= min(step, LAST_EARLY_STEP)
        if not (is_due or is_early) or self._next == NEVER:
            return
        while self._early_step <= step:
            self._early_step *= 2
        if is_due:
            self._next = ns + self._period
        held = self._held(torch, device)
        if held is None:
            self._next = NEVER
            return
        if device != self._device:  # its first steps may have computed elsewhere
            is_due, self._next = True, ns + self._period
            self._device, self.columns, self.early = device, MemoryTotals(), []
        if is_early:
            self.early.append((step, held.allocated))
            self._nodes = self._nodes or (step, nodes_made(torch))
        self.columns.peak = max(held.peak, self.columns.peak or 0)
        if is_due:
            self._keep(held, step, ns)

    def _held(self, torch: Any, device: int | None) -> Holding | None:
        try:
            return machine.memory_totals(torch, device)
        except Exception:  # noqa: BLE001 - an allocator of the job's own: the measurement goes on without it
            return None

    def _keep(self, held: Holding, step: int, ns: int) -> None:
        columns = self.columns
        columns.step.append(step)
        columns.ns.append(ns)
        columns.allocated.append(held.allocated)
        columns.reserved.append(held.reserved)
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

    def looks(self, device: int | None) -> list[tuple[int, int]]:
        """Every step that was looked at on this device, with what was allocated at its end."""
        if device != self._device:
            return []
        return sorted({*self.early, *zip(self.columns.step, self.columns.allocated, strict=True)})

    def nodes_per_step(self, torch: Any, step: int) -> float | None:
        """Of the graphs that backward follows, until this step."""
        if self._nodes is None or step <= self._nodes[0]:
            return None
        return (nodes_made(torch) - self._nodes[1]) / (step - self._nodes[0])

    def told(self, torch: Any, device: int | None) -> MemoryTotals:
        """With what it could hold in the end."""
        if self.columns.step and self.columns.limit is None:
            with suppress(Exception):  # as above
                self.columns.limit = machine.memory_limit(torch, device)
        return self.columns


def nodes_made(torch: Any) -> int:
    """By this thread, as torch numbers them; 0 where this torch does not say (before 2.1)."""
    peek = getattr(getattr(torch, "autograd", None), "_get_sequence_nr", None)
    return 0 if peek is None else int(peek())
