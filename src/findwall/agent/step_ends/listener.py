"""What happens in the job, as the hooks, the lookout and the loop finder tell it.

What of it may end a step is marked; all of findwall's work on the training thread starts there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from findwall.agent.engine import Engine
from findwall.agent.step_ends.loopfinder import is_wanted
from findwall.agent.step_ends.stepfinder import Mark, Nest, StepEnd
from findwall.agent.timing.diary import LOADER_START
from findwall.machine import torch_device as machine

LOOP_NOTE = "a step is one turn of the loop at "
# Chosen by hand: until then the job may yet come to its device, or to its modules.
UNUSED_GPU_NS = 30_000_000_000
UNUSED_MODULES_NS = 60_000_000_000


class Driver(Protocol):
    """Who decides what follows from the end of a step."""

    thread_id: int  # the one that began: the job's main thread, as a rule

    def fail(self, error: BaseException) -> None:
        """findwall broke: be gone."""

    def step_found(self, engine: Engine, now: int) -> None:
        """A step has ended."""

    def marked_when_done(self, engine: Engine, source: StepEnd, key: int) -> None:
        """What may end a step has ended after all was measured."""

    def leave_if_asked(self) -> None:
        """The moment to end a job that is to be stopped."""


class Listener:
    """Told on the thread that trains, unless it says otherwise."""

    def __init__(self, engine: Engine, driver: Driver) -> None:
        self.gate, self.loading = engine.gate, engine.loading
        self.guard: Callable[[Callable[[], None]], None] = engine.guard
        self._engine, self._driver = engine, driver
        self._made = perf_counter_ns()
        self._loops: dict[int, str] = {}  # where they are, by their key
        self._optimizers = Nest()
        self._optimizer_steps = 0

    @property
    def off(self) -> bool:
        return self._engine.off

    # Optimizers

    def optimizer_made(self) -> None:
        self._engine.finder.training_expected = True

    def optimizer_steps(self) -> int:
        return self._optimizer_steps

    def optimizer_began(self, optimizer: Any) -> None:
        if not self._engine.off:
            self._optimizers.enter(id(optimizer))

    def optimizer_ended(self, optimizer: Any, failed: bool) -> None:
        """step() has been left, for good or by an exception."""
        if self._engine.off:
            return
        key = id(optimizer)
        self._optimizers.leave(key)
        if self._optimizers.inside:  # called by another one's step
            return
        if not failed:
            if not self._engine.parameters and self.recording():
                self.guard(lambda: self._count_parameters(optimizer))
            self._optimizer_steps += 1
            self._mark(StepEnd.OPTIMIZER, key, optimizer)

    def _count_parameters(self, optimizer: Any) -> None:
        groups = optimizer.param_groups
        self._engine.parameters = sum(one.grad is not None for group in groups for one in group["params"])

    # Modules, graphs, regions, and the job's own word

    @property
    def wants_module(self) -> bool:
        return not self._engine.off and self._engine.finder.source in (None, StepEnd.LOOP)

    def forward_ended(self, key: int, gradients: bool) -> None:
        if self._engine.off or threading.get_ident() != self._driver.thread_id:
            return
        if gradients:
            self._engine.finder.training_expected = True
        self._mark(StepEnd.FORWARD, key)

    def graph_replayed(self, graph: Any) -> None:
        self._mark(StepEnd.REPLAY, id(graph))

    def region_ended(self, key: int) -> None:
        self._mark_or_pass(StepEnd.REGION, key)

    def step_marked(self) -> None:
        """The job says itself that a step has ended."""
        self._mark_or_pass(StepEnd.EXPLICIT, 0)

    # Loops: asked on the loop finder's thread

    @property
    def finds_loops(self) -> bool:
        return is_wanted(self._engine.options, self._engine.rank)

    @property
    def wants_loop(self) -> bool:
        finder = self._engine.finder
        is_training = finder.training_expected  # then an optimizer's steps will come
        return not self._engine.off and not is_training and finder.source in (None, StepEnd.LOOP)

    def at_work(self) -> bool:
        torch, waited = self._engine.torch, perf_counter_ns() - self._made
        is_on_device = torch.cuda.is_initialized() or not machine.may_use_gpu(torch)
        if not is_on_device and waited < UNUSED_GPU_NS:
            return False
        return waited > UNUSED_MODULES_NS or not machine.brings_modules(torch)

    def other_marks(self) -> int:
        return self._engine.finder.marks

    def device_work(self) -> int | None:
        return machine.allocations(self._engine.torch)

    def loop_chosen(self, key: int, place: str) -> None:
        self._loops[key] = place

    def loop_turned(self, key: int) -> None:
        self._mark_or_pass(StepEnd.LOOP, key)

    def say_what_ends_a_step(self) -> None:
        """A person can then see what was taken for a step; the other kinds have a name of their own."""
        engine = self._engine
        notes = engine.record.notes
        notes[:] = [text for text in notes if not text.startswith(LOOP_NOTE)]
        place = self._loops.get(engine.finder.key or 0)
        if engine.finder.source is StepEnd.LOOP and place is not None:
            engine.note(f"{LOOP_NOTE}{place}: nothing else in this job says where a step ends")

    # Loaders

    def batch_taken(self, iterator: Any, batch: Any, spent_ns: int) -> None:
        engine = self._engine
        if engine.off or engine.done or threading.get_ident() != engine.thread_id:
            return
        self._mark(StepEnd.LOADER, 0)
        engine.gauge.loader_ns += spent_ns
        engine.gauge.batches += 1
        self.guard(lambda: engine.batch_taken(iterator, batch))

    def loader_started(self, spent_ns: int) -> None:
        if threading.get_ident() == self._engine.thread_id:
            self._engine.gauge.loader_ns += spent_ns

    def loader_began(self, spent_ns: int) -> None:
        """An iterator was made, or gave its first batch: workers were started, queues filled."""
        self.did_beside(LOADER_START, spent_ns)

    # What is no end of a step

    def did_beside(self, what: str, spent_ns: int) -> None:
        """The job did something beside its step."""
        engine = self._engine
        if not engine.off and threading.get_ident() == engine.thread_id:
            engine.diary.note(what, engine.steps_ended, spent_ns)

    def recording(self) -> bool:
        """Whether our own trace is being recorded."""
        window = self._engine.window
        return window is not None and window.state == "recording"

    def evaluation_began(self) -> None:
        engine = self._engine
        if engine.off:
            return
        if threading.get_ident() == engine.thread_id:
            engine.diary.evaluation_began()
        if self.gate.is_timing:
            self.guard(engine.cut)
        engine.gauge.evaluated = True

    def collected(self, spent_ns: int) -> None:
        if threading.get_ident() == self._engine.thread_id:
            self._engine.gauge.gc_ns += spent_ns

    def profiler_wanted(self) -> None:
        profilers, window = self._engine.profilers, self._engine.window
        if profilers.starting_ours:
            return
        profilers.seen = True
        if window is not None:
            self.guard(window.abort if window.state in ("prepared", "recording") else window.forget)

    def profiler_opened(self, is_open: bool) -> None:
        self._engine.profilers.marks_steps = is_open

    # Marks

    def _mark_or_pass(self, source: StepEnd, key: int) -> None:
        if not self.gate.left or self.gate.passed(source, key):
            self._mark(source, key)

    def _mark(self, source: StepEnd, key: int, optimizer: Any = None) -> None:
        """Something ended that may end a step."""
        engine = self._engine
        if engine.off:
            return
        if engine.done:
            self._driver.marked_when_done(engine, source, key)
            return
        now = perf_counter_ns()
        stage = engine.stage
        try:
            if machine.is_capturing(engine.torch):
                engine.finder.optimizer_captured |= source is StepEnd.OPTIMIZER
                return
            is_new = optimizer is not None and key not in engine.finder.known
            if engine.finder.mark(source, key, now, Mark(optimizer) if is_new else None):
                self._driver.step_found(engine, now)
        except Exception as error:  # noqa: BLE001 - fail open: whatever the stages raise, the job runs on
            self._driver.fail(error)
        finally:
            spent = perf_counter_ns() - now - engine.take_waited()
            if engine.stage is stage:  # what a change of stage takes is outside of every step that is timed
                engine.gauge.hook_ns += spent
        self._driver.leave_if_asked()
