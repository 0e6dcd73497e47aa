"""The measurement of one rank, driven by step ends: what the stages share, and the writing of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from findwall.measure import cost, machine
from findwall.measure.gate import Gate, Gauge
from findwall.measure.membership import Membership
from findwall.measure.options import Options
from findwall.measure.runfolder import RunFolder
from findwall.measure.stderr import say
from findwall.measure.stepfinder import StepFinder
from findwall.measure.steptimer import DeviceClock, StepTimer
from findwall.measure.telemetry import Gauges
from findwall.measure.tracewindow import JobProfilers, TraceWindow
from findwall.model.measurement import Measurement

BEFORE_TRACE = ("starting", "warm-up", "timing")
NO_STEPS = (
    "no step was found: this process called no optimizer, no module often enough, no data loader and no "
    "no_grad. A job that starts its own worker processes is measured with torchrun -m findwall run"
)


class Stage(Protocol):
    """A stretch of the measurement. Told of every step end; enters the next stage by itself."""

    name: str

    def step(self, engine: Engine, now: int) -> None: ...

    def close(self, engine: Engine) -> None:
        """The job has ended in this stage: keep what there is."""


@runtime_checkable
class Cuttable(Protocol):
    def cut(self, engine: Engine) -> None: ...


class Engine:
    """Told when a step ended, on the thread that trains."""

    def __init__(
        self,
        torch: Any,
        options: Options,
        rank: Membership,
        gate: Gate,
        find_folder: Callable[[], RunFolder | None],
    ) -> None:
        self.torch = torch
        self.options = options
        self.rank = rank
        self.gate = gate
        self.finder = StepFinder()
        self.gauge = Gauge()
        self.record = Measurement(rank=rank.rank, world_size=rank.world_size)
        self.profilers = JobProfilers()
        self.compilations = machine.Compilations()
        self.device: int | None = None
        self.clock: DeviceClock | None = None
        self.thread_id = threading.get_ident()
        self.step_number = 0
        self.telemetry = Gauges()
        self.window: TraceWindow | None = None
        self.timer: StepTimer | None = None
        self.stage: Stage | None = None
        self.deferred: Callable[[], None] | None = None  # to be done outside of autograd
        self.batch_size: tuple[float, str] | None = None
        self.prefetched = 0  # batches that loader workers may have ready
        self.every = 1  # of so many timed steps one is measured
        self.timed: StepTimer | None = None  # the steps that were timed without the profiler
        self.done = False
        self._find_folder = find_folder

    @property
    def folder(self) -> RunFolder | None:
        return self._find_folder()

    def step_ended(self, now: int) -> None:
        self.step_number += 1
        if self.stage is not None:
            self.stage.step(self, now)

    def let_pass(self, steps: int, gauge: Gauge | None = None) -> None:
        """So many steps are not measured, only counted."""
        if steps > 0:
            self.gate.shut(self.finder.source, self.finder.key, steps, gauge, self.finder.known)

    def take_passed(self) -> tuple[list[int], int]:
        """When the steps that passed ended, and what they cost. They count like all others."""
        passed, spent = self.gate.take()
        self.step_number += len(passed)
        return passed, spent

    def start_over(self) -> None:
        """What was measured is not what the job is about."""
        self.abort_window()
        if self.stage is not None:
            self.stage.close(self)
        self.forget_steps()
        self.telemetry.stop()
        self.telemetry = Gauges()
        self.record = Measurement(rank=self.rank.rank, world_size=self.rank.world_size)
        self.device = self.clock = self.window = self.timer = self.timed = self.stage = None
        self.deferred = None
        self.every = 1
        self.done = False

    def forget_steps(self) -> None:
        self.gate.take()
        self.step_number = 0

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
        self.clock = None if device is None else DeviceClock(self.torch, device)
        self.record.device_kind = "cpu" if device is None else "gpu"
        self.record.device_name = machine.device_name(self.torch, device)

    def new_timer(self, at_once: bool = True) -> StepTimer:
        self.timer = StepTimer(self.clock, self.gauge, at_once)
        return self.timer

    def first_batch(self, iterator: Any, batch: Any) -> None:
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

    def job_ended(self, failure: str) -> None:
        """Before all was measured: keep what there is."""
        self.record.job_ended = failure or "ended"
        if self.stage is not None:
            self.stage.close(self)
        else:
            self.note(NO_STEPS)
            if self.rank.speaks:
                say(NO_STEPS)
        self.save(final=True)

    def broke(self, error: BaseException) -> None:
        self.note(f"findwall stopped measuring: {type(error).__name__}: {error}")
        self.save(final=True)

    def finished(self) -> None:
        self.done = True
        self.record.phase = "done"
        self.stage = None

    def save(self, final: bool = False) -> None:
        folder = self.folder
        if self.timed is not None:
            # The device had not passed the last of the timed steps when their stage ended; by now it has.
            self.timed.resolve()
        self.record.final = final
        self.record.steps_seen = self.step_number
        if self.record.phase in BEFORE_TRACE:  # what comes later is not what was timed
            self.record.step_source = None if self.finder.source is None else self.finder.source.label
        self.record.cost["sentence"] = cost.sentence(self.record.cost)
        if folder is None:
            return
        for text in folder.notes:
            self.note(text)
        folder.write_measurement(self.record)
