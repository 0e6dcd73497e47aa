"""The measurement of one rank, driven by step ends: what the stages share, and the writing of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from copy import copy
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from findwall.agent.allocations.failed_requests import caught_failures, failed_request, trained_model
from findwall.agent.allocations.memory_totals import UNASKED, Totals
from findwall.agent.allocations.oom_observer import Failures, forget_failures, watch_failures
from findwall.agent.ending.measuring_again import ENDED_BEFORE, change_the_mean
from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.ending.stderr import say
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.agent.step_ends.nosteps import no_steps
from findwall.agent.step_ends.step_gate import FOR_GOOD, Gate, Gauge, Watch
from findwall.agent.step_ends.stepfinder import Mark, Nest, StepEnd, StepFinder
from findwall.agent.timing import cost
from findwall.agent.timing.collector import asked_at
from findwall.agent.timing.diary import LOADER_START, Diary
from findwall.agent.timing.loading import Loading
from findwall.agent.timing.step_kinds import FEWEST_FOR_SPREAD, Kind
from findwall.agent.timing.steptimer import DeviceClock, StepTimer
from findwall.agent.timing.telemetry import Gauges
from findwall.agent.tracing.graph_captures import CAPTURES
from findwall.agent.tracing.tracewindow import JobProfilers, TraceWindow
from findwall.machine import torch_device as machine
from findwall.machine.host_memory import resident
from findwall.model.answers.memory_answer import CaughtFailures, FailedModel, OutOfMemory
from findwall.model.measurement import ENDED, Later, Measurement
from findwall.units import ms

if TYPE_CHECKING:
    from findwall.agent.allocations.first_steps import FirstSteps

BEFORE_TRACE = ("starting", "warm-up", "timing")
SPARE_BYTES = 16 << 20  # of addresses: what a list of all of Python's objects takes, and words that are made
LOOP_NOTE = "a step is one turn of the loop at "
# Chosen by hand: until then the job may yet come to its device, or to its modules.
UNUSED_GPU_NS = 30_000_000_000
UNUSED_MODULES_NS = 60_000_000_000


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
    """Who has the engine, and decides what goes beyond one measurement."""

    thread_id: int  # the one that began: the job's main thread, as a rule

    def find_folder(self) -> RunFolder | None: ...
    def fail(self, error: BaseException) -> None:
        """findwall broke: be gone."""

    def guard(self, action: Callable[[], None]) -> None:
        """Do this, and be gone if it fails."""

    def step_found(self, engine: Engine, now: int) -> None:
        """A step has ended."""

    def marked_when_done(self, engine: Engine, source: StepEnd, key: int) -> None:
        """What may end a step has ended after all was measured."""

    def leave_if_asked(self) -> None:
        """The moment to end a job that is to be stopped."""


class Engine:
    """Told by the hooks what happens in the job, on the thread that trains."""

    def __init__(self, torch: Any, options: Options, rank: Membership, gate: Gate, owner: Owner) -> None:
        self.torch = torch
        self.off = False  # findwall is out
        self.options = options
        self.rank = rank
        self.gate = gate
        self.finder = StepFinder()
        self.gauge = Gauge()
        self.record = Measurement(rank=rank.rank, world_size=rank.world_size)
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
        self.totals = Totals()
        self.first_steps: FirstSteps | None = None  # recorded, where memory is asked for
        self.failures: Failures | None = None  # requests for memory, where that is watched
        # Never touched, so that it takes no memory, but room that a process with a limit has left at its end.
        self.spare: bytearray | None = bytearray(SPARE_BYTES)
        self.held_before = held.allocated if (held := resident()) is not None else 0  # by Python and torch
        self.oom: OutOfMemory | None = None  # that the job ended with
        self.failed_model: FailedModel | None = None  # what it trained then
        self.caught: CaughtFailures | None = None  # and those that it lived on after
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
        self._former: Measurement | None = None  # what was measured before, and may yet stand
        self.guard = owner.guard
        self._owner = owner
        self._made = perf_counter_ns()
        self._loops: dict[int, str] = {}  # where they are, by their key
        self._optimizers = Nest()
        self._optimizer_steps = 0

    @property
    def folder(self) -> RunFolder | None:
        return self._owner.find_folder()

    # What the hooks tell

    def optimizer_made(self) -> None:
        self.finder.training_expected = True

    def optimizer_steps(self) -> int:
        return self._optimizer_steps

    def optimizer_began(self, optimizer: Any) -> None:
        if not self.off:
            self._optimizers.enter(id(optimizer))

    def optimizer_ended(self, optimizer: Any, failed: bool) -> None:
        """step() has been left, for good or by an exception."""
        if self.off:
            return
        key = id(optimizer)
        self._optimizers.leave(key)
        if self._optimizers.inside:  # called by another one's step
            return
        if not failed:
            if not self.parameters and self.recording():
                self.guard(lambda: self._count_parameters(optimizer))
            self._optimizer_steps += 1
            self._mark(StepEnd.OPTIMIZER, key, optimizer)

    def _count_parameters(self, optimizer: Any) -> None:
        groups = optimizer.param_groups
        self.parameters = sum(one.grad is not None for group in groups for one in group["params"])

    def graph_replayed(self, graph: Any) -> None:
        self._mark(StepEnd.REPLAY, id(graph))

    def forward_ended(self, key: int, gradients: bool) -> None:
        if self.off or threading.get_ident() != self._owner.thread_id:
            return
        if gradients:
            self.finder.training_expected = True
        self._mark(StepEnd.FORWARD, key)

    def region_ended(self, key: int) -> None:
        self._mark_or_pass(StepEnd.REGION, key)

    # What the loop finder tells, and asks

    @property
    def finds_loops(self) -> bool:
        """Whoever else measures a job marks its steps; and several ranks would have to agree on the first."""
        return self.options.caller == "findwall run" and self.rank.world_size == 1

    @property
    def wants_loop(self) -> bool:
        is_training = self.finder.training_expected  # then an optimizer's steps will come
        return not self.off and not is_training and self.finder.source in (None, StepEnd.LOOP)

    def at_work(self) -> bool:
        waited = perf_counter_ns() - self._made
        is_on_device = self.torch.cuda.is_initialized() or not machine.may_use_gpu(self.torch)
        if not is_on_device and waited < UNUSED_GPU_NS:
            return False
        return waited > UNUSED_MODULES_NS or not machine.brings_modules(self.torch)

    def other_marks(self) -> int:
        return self.finder.marks

    def device_work(self) -> int | None:
        return machine.allocations(self.torch)

    def loop_chosen(self, key: int, place: str) -> None:
        self._loops[key] = place

    def loop_turned(self, key: int) -> None:
        self._mark_or_pass(StepEnd.LOOP, key)

    def say_what_ends_a_step(self) -> None:
        """A person can then see what was taken for a step; the other kinds have a name of their own."""
        notes = self.record.notes
        notes[:] = [text for text in notes if not text.startswith(LOOP_NOTE)]
        place = self._loops.get(self.finder.key or 0)
        if self.finder.source is StepEnd.LOOP and place is not None:
            self.note(f"{LOOP_NOTE}{place}: nothing else in this job says where a step ends")

    @property
    def wants_module(self) -> bool:
        return not self.off and self.finder.source in (None, StepEnd.LOOP)

    def step_marked(self) -> None:
        """The job says itself that a step has ended."""
        self._mark_or_pass(StepEnd.EXPLICIT, 0)

    def batch_taken(self, iterator: Any, batch: Any, spent_ns: int) -> None:
        if self.off or self.done or threading.get_ident() != self.thread_id:
            return
        self._mark(StepEnd.LOADER, 0)
        self.gauge.loader_ns += spent_ns
        self.gauge.batches += 1
        self.guard(lambda: self._after_batch(iterator, batch))

    def loader_started(self, spent_ns: int) -> None:
        if threading.get_ident() == self.thread_id:
            self.gauge.loader_ns += spent_ns

    def loader_began(self, spent_ns: int) -> None:
        """An iterator was made, or gave its first batch: workers were started, queues filled."""
        self.did_beside(LOADER_START, spent_ns)

    def did_beside(self, what: str, spent_ns: int) -> None:
        """The job did something beside its step."""
        if not self.off and threading.get_ident() == self.thread_id:
            self.diary.note(what, self.steps_ended, spent_ns)

    @property
    def steps_ended(self) -> int:
        """Also those that passed at the gate, or after all was measured."""
        watch = self.gate.watch
        return self.step_number + len(self.gate.ends) + (0 if watch is None else watch.count)

    def recording(self) -> bool:
        """Whether our own trace is being recorded."""
        return self.window is not None and self.window.state == "recording"

    def evaluation_began(self) -> None:
        if self.off:
            return
        if threading.get_ident() == self.thread_id:
            self.diary.evaluation_began()
        if self.gate.is_timing:
            self.guard(self.cut)
        self.gauge.evaluated = True

    def collected(self, spent_ns: int) -> None:
        if threading.get_ident() == self.thread_id:
            self.gauge.gc_ns += spent_ns

    def profiler_wanted(self) -> None:
        if self.profilers.starting_ours:
            return
        self.profilers.seen = True
        if self.window is not None:
            in_use = self.window.state in ("prepared", "recording")
            self.guard(self.window.abort if in_use else self.window.forget)

    def profiler_opened(self, is_open: bool) -> None:
        self.profilers.marks_steps = is_open

    # Steps

    def _mark_or_pass(self, source: StepEnd, key: int) -> None:
        if not self.gate.left or self.gate.passed(source, key):
            self._mark(source, key)

    def _mark(self, source: StepEnd, key: int, optimizer: Any = None) -> None:
        """Something ended that may end a step; all of findwall's work on the training thread starts here."""
        if self.off:
            return
        if self.done:
            self._owner.marked_when_done(self, source, key)
            return
        now = perf_counter_ns()
        stage = self.stage
        try:
            if machine.is_capturing(self.torch):
                self.finder.optimizer_captured |= source is StepEnd.OPTIMIZER
                return
            is_new = optimizer is not None and key not in self.finder.known
            if self.finder.mark(source, key, now, Mark(optimizer) if is_new else None):
                self._owner.step_found(self, now)
        except Exception as error:  # noqa: BLE001 - fail open
            self._owner.fail(error)
        finally:
            spent = perf_counter_ns() - now - self.take_waited()
            if self.stage is stage:  # what a change of stage takes is outside of every step that is timed
                self.gauge.hook_ns += spent
        self._owner.leave_if_asked()

    def _after_batch(self, iterator: Any, batch: Any) -> None:
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
            self.totals.look(self.torch, self.device, self.steps_ended, now - self._made)

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
        self._former = copy(self.record) if keep else None
        if self._former is not None:
            self._former.beside = list(self.record.beside)
        CAPTURES.reopen()
        self.abort_window()
        if self.stage is not None:
            self.stage.close(self)
        self.forget_steps()
        self.telemetry.stop()
        self.telemetry = Gauges()
        self.record = Measurement(rank=self.rank.rank, world_size=self.rank.world_size)
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
        self.totals = Totals()
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
        if device is not None and self.options.memory and self.failures is None:
            self.failures = watch_failures(self.torch)
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

    def job_ended(self, failure: str) -> None:
        """Before all was measured: keep what there is."""
        self.record.job_ended = failure or ENDED
        if self.stage is not None:
            self.stage.close(self)
        else:
            is_training = self.finder.training_expected
            text = no_steps(self.finder.so_far(), is_training, self.options, self.finds_loops)
            self.note(text)
            if self.rank.speaks and self.oom is None:
                say(text)
        self.save(final=True)

    def takes_back(self, failure: str) -> bool:
        """The job ended while it was measured again: what there was stands, unless this has a trace."""
        former, self._former = self._former, None
        if former is None or self.has_trace:
            return False
        if self.stage is not None:
            self.stage.close(self)
        self.abort_window()
        self.record = former
        self.record.job_ended = failure or ENDED
        self._put_memory()
        self.note(ENDED_BEFORE)
        if self.folder is not None:
            self.folder.write_measurement(former)
        return True

    @property
    def has_trace(self) -> bool:
        """Or all that was asked for."""
        trace = self.record.trace
        return bool(trace and trace.file) or (not self.options.trace and len(self.record.steps) > 0)

    def ran_out(self, error: BaseException | None) -> OutOfMemory | None:
        """The job ends: of memory, or of something else."""
        began, self.spare = perf_counter_ns(), None
        with contextlib.suppress(Exception):  # the exception is any, and the device may be lost
            self.oom = failed_request(error, self.torch, self.failures, self.totals, self.steps_ended)
            if self.oom is not None:
                self._keep_failed_model(error, self.oom)
        with contextlib.suppress(Exception):
            # Only torch's own requests have a size; a driver's or a library's are counted nowhere.
            ended = self.oom is not None and not self.oom.on_host and self.oom.asked_gib is not None
            self.caught = caught_failures(self.torch, self.device, self.failures, ended)
        forget_failures()
        if self.oom is not None and self.first_steps is not None:
            self.first_steps.keep()
        if self.oom is not None:
            self.record.cost["failure_ms"] = ms(perf_counter_ns() - began)
        return self.oom

    def _keep_failed_model(self, error: BaseException | None, oom: OutOfMemory) -> None:
        found = trained_model(error, self.torch, oom)
        if found is not None and oom.on_host:
            found.before = self.held_before
        self.failed_model = found

    def _put_memory(self) -> None:
        self.record.oom, self.record.failed_model = self.oom, self.failed_model
        self.record.caught = self.caught

    def keep_memory(self) -> None:
        """All was measured before: what memory did since is read with it, nothing else is new."""
        self._put_memory()
        self.record.totals = self.totals.told(self.torch, self.device)
        if self.folder is not None:
            self.folder.write_measurement(self.record)

    def crashed(self, failure: str) -> None:
        """The job ended badly after all was measured: the folder says so."""
        self.record.job_ended = failure
        self.save(final=True)

    def broke(self, error: BaseException) -> None:
        self.note(f"findwall stopped measuring: {type(error).__name__}: {error}")
        self.save(final=True)

    def finished(self) -> None:
        self.done = True
        self._former = None
        self.record.phase = "done"
        self.stage = None
        CAPTURES.discard()

    def watch_on(
        self,
        block_ended: Callable[[float], None],
        waits_ns: int,
        waited: Callable[[], None],
        is_disturbed: Callable[[], bool],
    ) -> None:
        """All is measured: steps are counted on, to the job's end, for what comes too seldom to be timed.

        `block_ended` is told the mean of as many as were timed, again and again; `waited` is called after so
        long (0 never). Steps are not timed before nothing disturbs them any more."""
        if self.gate.watch is None and self.usual_ns > 0:
            begun = self.step_number

            def looked(mean_ns: float) -> None:
                self.guard(lambda: self.look_at_memory(perf_counter_ns()))
                block_ended(mean_ns)

            self.gate.watch = Watch(
                self.finder.source,
                self.finder.key,
                self.usual_ns,
                lambda count, now: self.diary.step_ended(begun + count, now, self.usual_ns),
                max(len(self.record.steps), FEWEST_FOR_SPREAD),
                looked,
                perf_counter_ns() + waits_ns if waits_ns else FOR_GOOD,
                waited,
                is_disturbed,
            )

    @property
    def timed_ns(self) -> float:
        """The mean of the timed steps."""
        return sum(self.record.steps.host_ns) / max(len(self.record.steps), 1)

    def look_back(self) -> bool:
        """The job has ended after all was measured. True: the steps since then change what was said."""
        watch, self.gate.watch = self.gate.watch, None
        if watch is None or watch.timed < FEWEST_FOR_SPREAD or self.usual_ns <= 0:
            return False
        self.diary.last_step = watch.last
        self.record.later = Later(watch.timed, watch.ns, self.step_number, watch.slow_step, watch.slow_ns)
        if not change_the_mean(self.record.later, self.timed_ns, self.usual_ns):
            return False
        self.save(final=True)
        return True

    def save(self, final: bool = False) -> None:
        if self._former is not None and not self.has_trace:
            return  # what was measured before is still the better one
        folder = self.folder
        if self.timed is not None:
            # The device had not passed the last of the timed steps when their stage ended; by now it has.
            self.timed.resolve()
        self.record.final = final
        self.record.beside = self.diary.entries
        self.record.collected_at = asked_at()
        self.record.elapsed = self.diary.elapsed(perf_counter_ns())
        self.record.steps_seen = self.step_number
        self._put_memory()
        self.record.totals = self.totals.told(self.torch, self.device)
        if self.record.phase in BEFORE_TRACE:  # what comes later is not what was timed
            self.record.step_source = None if self.finder.source is None else self.finder.source.label
        self.record.cost["sentence"] = cost.sentence(self.record.cost)
        if folder is None:
            return
        for text in folder.notes:
            self.note(text)
        folder.write_measurement(self.record)
