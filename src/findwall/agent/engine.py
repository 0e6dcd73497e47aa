"""The measurement of one rank, driven by step ends: what its stages share."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol, runtime_checkable

from findwall.agent.allocations.memory_totals import UNASKED
from findwall.agent.allocations.memory_watch import MemoryWatch
from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.agent.step_ends.step_gate import Gate, Gauge
from findwall.agent.step_ends.stepfinder import StepFinder
from findwall.agent.timing.diary import Diary
from findwall.agent.timing.loading import Loading
from findwall.agent.timing.step_kinds import Kind
from findwall.agent.timing.steptimer import DeviceClock, StepTimer
from findwall.agent.timing.telemetry import Gauges
from findwall.agent.tracing.graph_captures import CAPTURES
from findwall.agent.tracing.tracewindow import JobProfilers, TraceWindow
from findwall.apply.live_fixes import LiveFixes
from findwall.machine import torch_device as machine
from findwall.model.measurement import Measurement


class Stage(Protocol):
    """A stretch of the measurement. Told of every step end; enters the next stage by itself."""

    name: str

    def step(self, engine: Engine, now: int) -> None: ...

    def close(self, engine: Engine) -> None:
        """The job has ended in this stage: keep what there is."""


@runtime_checkable
class Cuttable(Protocol):
    def cut(self, engine: Engine) -> None: ...


@runtime_checkable
class Receiving(Protocol):
    def batch_taken(self, engine: Engine, batch: Any) -> None: ...


class Owner(Protocol):
    """Who has the engine."""

    def find_folder(self, at_last: bool = False) -> RunFolder | None: ...
    def guard(self, action: Callable[[], None]) -> None:
        """Do this, and be gone if it fails."""


class Engine:
    """What is known of the job so far, and the stage that its steps are in."""

    def __init__(self, torch: Any, options: Options, rank: Membership, gate: Gate, owner: Owner) -> None:
        self.torch = torch
        self.off = False  # findwall is out
        self.options = options
        self.rank = rank
        self.gate = gate
        self.finder = StepFinder()
        self.gauge = Gauge()
        self.record = _blank(rank)
        self.profilers = JobProfilers()
        self.compilations = machine.Compilations()
        self.diary = Diary()
        self.kinds: list[Kind] = []  # of steps, beside the usual one
        self.usual_ns = 0.0  # a usual step, as far as it is known
        self.device: int | None = None
        self.clock: DeviceClock | None = None
        self.thread_id = threading.get_ident()
        self.step_number = 0
        self.telemetry = Gauges()
        self.memory = MemoryWatch(torch)
        self.loading = Loading()
        self.window: TraceWindow | None = None
        self.timer: StepTimer | None = None
        self.stage: Stage | None = None
        self.deferred: Callable[[], None] | None = None  # to be done outside of autograd
        self.batch_size: tuple[float, str] | None = None
        self.parameters = 0  # that had a gradient at a traced update
        self.micro_steps: int | None = None  # calls of the model per step
        self.prefetched = 0  # batches that loader workers may have ready
        self.every = 1  # of so many timed steps one is measured
        self.timed: StepTimer | None = None  # the steps that were timed without the profiler
        self.done = False
        self.live = LiveFixes()  # fixes that are screened once the job has warmed up
        self.former: Measurement | None = None  # what was measured before, and may yet stand
        self.guard = owner.guard
        self._owner = owner

    @property
    def folder(self) -> RunFolder | None:
        return self._owner.find_folder()

    def settle_folder(self) -> RunFolder | None:
        """Where this rank's files go, now that all ranks have begun."""
        return self._owner.find_folder(at_last=True)

    @property
    def steps_ended(self) -> int:
        """Also those that passed at the gate, or after all was measured."""
        watch = self.gate.watch
        return self.step_number + len(self.gate.ends) + (0 if watch is None else watch.count)

    def batch_taken(self, iterator: Any, batch: Any) -> None:
        self.catch_up()
        if isinstance(self.stage, Receiving):
            self.stage.batch_taken(self, batch)
        if not self.record.loader_seen:
            self._first_batch(iterator, batch)

    def step_ended(self, now: int) -> None:
        self.diary.step_ended(self.steps_ended, now, self.usual_ns)
        self.step_number += 1
        self.look_at_memory(now)
        if self.stage is not None:
            self.stage.step(self, now)

    def look_at_memory(self, now: int) -> None:
        if self.record.phase not in UNASKED:
            self.memory.look(self.device, self.steps_ended, now)

    def let_pass(self, steps: int, gauge: Gauge | None = None) -> None:
        """So many steps are not measured, only counted."""
        if steps > 0:
            self.gate.shut(self.finder.source, self.finder.key, steps, gauge, self.finder.known)

    def take_passed(self) -> tuple[list[int], int]:
        """When the steps that passed ended, and what they cost. They count like all others."""
        passed, spent = self.gate.take()
        self.step_number += len(passed)
        return passed, spent

    def start_over(self, keep: bool) -> None:
        """What was measured is not what the job is about. `keep`: it stands until there is more."""
        self.former = copy(self.record) if keep else None
        if self.former is not None:
            self.former.beside = list(self.record.beside)
        CAPTURES.reopen()
        self.abort_window()
        if self.stage is not None:
            self.stage.close(self)
        self.forget_steps()
        self.telemetry.stop()
        self.telemetry = Gauges()
        self.record = _blank(self.rank)
        self.device = self.clock = self.window = self.timer = self.timed = self.stage = None
        self.deferred = self.micro_steps = self.gate.watch = None
        self.parameters = 0
        self.usual_ns = 0.0
        self.every = 1
        self.kinds = []
        self.done = False

    def forget_steps(self) -> None:
        self.gate.take()
        self.step_number = 0
        self.memory.forget_steps()
        self.diary.entries.clear()  # they are told by the number of the step

    def cut(self) -> None:
        """Steps from here on are of another kind than those that passed: the two share no time."""
        if isinstance(self.stage, Cuttable):
            self.stage.cut(self)

    def take_waited(self) -> int:
        return 0 if self.clock is None else self.clock.take_waited()

    def enter(self, stage: Stage) -> None:
        self.stage = stage
        self.record.phase = stage.name

    def look_at_device(self) -> None:
        """What the job computes on may only be known after its first steps."""
        device = machine.device_in_use(self.torch)
        if device == self.device:
            return
        self.device = device
        if device is not None and self.options.memory:
            self.memory.see_failures()
        self.clock = None if device is None else DeviceClock(self.torch, device)
        self.record.device_kind = "cpu" if device is None else "gpu"
        self.record.device_name = machine.device_name(self.torch, device)

    def new_timer(self, at_once: bool = True) -> StepTimer:
        self.timer = StepTimer(self.clock, self.gauge, at_once)
        return self.timer

    def _first_batch(self, iterator: Any, batch: Any) -> None:
        """What the job's loader is, and how much it gives at a time."""
        self.record.loader_seen = True
        workers = int(getattr(iterator, "_num_workers", 0) or 0)
        self.record.loader_workers = workers
        self.prefetched = workers * int(getattr(iterator, "_prefetch_factor", 0) or 0)
        size = machine.batch_size(batch)
        if size is not None:
            self.batch_size = size

    def note(self, text: str) -> None:
        if text not in self.record.notes:
            self.record.notes.append(text)

    def safely(self, action: Callable[[], None]) -> None:
        """Now, or, inside autograd, at the next moment outside of it."""
        if machine.inside_backward(self.torch):
            self.deferred = action
        else:
            action()

    def catch_up(self) -> None:
        """Do what was put off, if this is the moment."""
        if self.deferred is not None and not machine.inside_backward(self.torch):
            action, self.deferred = self.deferred, None
            action()

    def abort_window(self) -> None:
        if self.window is not None:
            self.window.abort()

    def finished(self) -> None:
        self.done = True
        self.former = None
        self.record.phase = "done"
        self.stage = None
        CAPTURES.discard()


def _blank(rank: Membership) -> Measurement:
    node = platform.node() if rank.world_size > 1 else ""
    return Measurement(rank=rank.rank, world_size=rank.world_size, node=node)
