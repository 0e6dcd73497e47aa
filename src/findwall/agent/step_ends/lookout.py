"""Looks for what ends a step where no optimizer does: the outermost module's call, no_grad regions, loops.

Taken down as soon as something better ends steps.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any, Protocol

from findwall.agent.step_ends.forward import ForwardSeeker, wrap_call
from findwall.agent.step_ends.loopfinder import LoopFinder, LoopWatcher
from findwall.agent.step_ends.regions import watch_regions
from findwall.agent.step_ends.step_gate import Gate

REGION_WAIT_NS = 5_000_000_000


class Watcher(LoopWatcher, Protocol):
    """Who is told."""

    gate: Gate

    @property
    def wants_module(self) -> bool:
        """Nothing ends steps yet."""

    def other_marks(self) -> int:
        """How many were seen, turns of a loop left out."""

    def forward_ended(self, key: int, gradients: bool) -> None: ...
    def region_ended(self, key: int) -> None: ...


class Lookout:
    def __init__(self, torch: Any, thread_id: int, watcher: Watcher, finds_loops: bool) -> None:
        self._torch, self._watcher = torch, watcher
        self._first_region = self._regions = 0
        self._seeker = ForwardSeeker(torch, thread_id, self._module_found)
        self._unwrap = [watch_regions(torch, thread_id, self._region_left)]  # what takes the wraps off
        main_file = getattr(sys.modules["__main__"], "__file__", None)
        self._loops = LoopFinder(thread_id, watcher, main_file or "", self._marks)
        if finds_loops:
            self._loops.start()
        self._seeker.start()

    def stop(self) -> None:
        self._seeker.stop()
        self._loops.stop()
        while self._unwrap:
            self._unwrap.pop()()

    def join(self) -> None:
        self._seeker.join()
        self._loops.join()

    def forked(self) -> None:
        self._loops.forked()

    def _module_found(self, module: Any) -> None:
        """Called on the seeker's thread; torch is only asked to hold an attribute."""
        if self._watcher.wants_module:
            self._watcher.guard(lambda: self._wrap(module))

    def _wrap(self, module: Any) -> None:
        self._unwrap.append(wrap_call(self._torch, module, self._watcher.gate, self._watcher.forward_ended))

    def _marks(self) -> int:
        """Of all kinds but turns of a loop, those included that are not counted yet."""
        return self._watcher.other_marks() + self._regions

    def _region_left(self, key: int) -> None:
        """Models are initialised in such regions too: they count only once they keep coming."""
        self._regions += 1
        now = perf_counter_ns()
        self._first_region = self._first_region or now
        if now - self._first_region > REGION_WAIT_NS:
            self._watcher.region_ended(key)
