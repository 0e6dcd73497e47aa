"""The first steps with the allocator's history, where `--memory` is given.

Most jobs that run out of memory do so there, and then the lines that hold most are known.

It begins as soon as CUDA is up and ends with the warm-up, so no step is timed with it. Nobody asks CUDA to be
up for it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from findwall.agent.allocations.memory_recording import History, barred, keep_snapshot
from findwall.machine import torch_device as machine
from findwall.units import NS_PER_S

if TYPE_CHECKING:
    from findwall.agent.engine import Engine

MOST_EVENTS = 20_000  # the last ones: a few steps, written within half a second. By hand.
WRITES_AT_MOST_NS = NS_PER_S // 2
BEFORE_TIMING = ("starting", "warm-up")


class FirstSteps:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._history = engine, History(engine.torch)
        later: Any = getattr(engine.torch.cuda, "_lazy_call", None)
        if engine.options.memory and later is not None and machine.may_use_gpu(engine.torch):
            later(self._begin)

    def _begin(self) -> None:
        """CUDA is up. What is raised here would be the job's."""
        engine = self._engine
        with suppress(Exception):  # private parts of torch
            if engine.record.phase in BEFORE_TIMING and not engine.done and not barred(engine):
                engine.memory.see_failures()
                self._history.begin(MOST_EVENTS)

    def end(self) -> None:
        """As often as one likes. CUDA that comes up later is told nothing."""
        with suppress(Exception):  # the same private parts
            self._history.end()
            queued = self._engine.torch.cuda._queued_calls
            queued[:] = [one for one in queued if one[0] != self._begin]

    def keep(self) -> None:
        """A request has failed, and the job ends: what was recorded up to then."""
        if self._history.is_on:
            with suppress(Exception):  # the disk, too
                keep_snapshot(self._engine, WRITES_AT_MOST_NS)
            self.end()
