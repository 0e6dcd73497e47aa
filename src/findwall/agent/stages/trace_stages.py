"""The stages behind the timing: ranks agree on the steps, the trace is recorded, lines are sampled."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from statistics import mean, median
from time import perf_counter_ns

import msgspec

from findwall.agent.allocations.memory_recording import RecordingMemory, write_known
from findwall.agent.ending.account import save
from findwall.agent.engine import Engine
from findwall.agent.rank_sample import Choice, RankTiming, is_sampled, named
from findwall.agent.stages.control import Control, finish, settling_steps
from findwall.agent.stages.observing import Observing
from findwall.agent.stages.surroundings import look_around
from findwall.agent.step_ends.first_inputs import Inputs, count_inputs, micro_steps
from findwall.agent.timing.sampler import LineSampler
from findwall.agent.timing.step_kinds import Kind, Window
from findwall.agent.tracing.graph_captures import CAPTURES
from findwall.agent.tracing.traceplan import labels_of_traced, plan_trace
from findwall.agent.tracing.tracewindow import TraceWindow, barred
from findwall.files import write_atomically
from findwall.machine import neighbours
from findwall.model.measurement import Trace
from findwall.units import NS_PER_S

LINES_AT_LEAST_NS = NS_PER_S
LINES_AT_MOST_NS = 6 * NS_PER_S
WINDOW_WARM_STEPS = 2
WARMED_AT_LEAST = 2  # steps that are dropped even with the least --wait
SHORTER = (  # for short jobs, and the steps that are timed and traced then
    ("--wait 2 --steps 5", 8),
    ("--wait 1 --steps 1 --trace-steps 1", 2),
)
RECORDED_AT_MOST_NS = 5 * NS_PER_S  # under the profiler: a million events at most
FEWEST_TRACED = 2  # one of them is counted
PLAN_WAIT_NS = 60 * NS_PER_S
PLAN_LOOK_NS = 20_000_000  # between two looks for the plan: a file system is asked, not the device
WAITED_SHARE = 0.02  # of the step: a loader waited for longer is starved. Chosen by hand, not calibrated.


def after_timing(engine: Engine) -> None:
    if engine.options.last == "timing":
        finish(engine)
        return
    look_around(engine)
    save(engine)
    why = "" if engine.options.trace else engine.options.why_no_trace
    why = why or barred(engine.torch)
    if why:
        without_trace(engine, why)
    elif engine.rank.world_size > 1:
        engine.enter(Agree(engine))
    else:
        engine.enter(Tracing(engine))


def without_trace(engine: Engine, why: str, others_are: bool = False) -> None:
    engine.record.trace = Trace(why_not=why, others_are=others_are)
    after_trace(engine)


def after_trace(engine: Engine) -> None:
    """What is seen in steps that nobody times."""
    if engine.options.memory and engine.device is not None:
        engine.enter(RecordingMemory(engine, lambda engine: engine.enter(Lines(engine))))
    else:
        engine.enter(Lines(engine))


def ended_first(engine: Engine) -> None:
    """The job was too short for a trace: say so, and what would give one."""
    if not engine.options.trace:
        engine.record.trace = Trace(why_not=engine.options.why_no_trace)
        return
    seen, before = engine.step_number, WARMED_AT_LEAST + warm_steps(engine) + _notice(engine)
    fitting = [f", or {engine.options.spelled(flags)}," for flags, steps in SHORTER if before + steps <= seen]
    engine.record.trace = Trace(
        why_not=f"the job ended after {seen} steps; a longer run{''.join(fitting[:1])} gives one"
    )


def _notice(engine: Engine) -> int:
    """Steps that ranks need to agree on those to be traced."""
    if engine.rank.world_size == 1:
        return 0
    step_ns = median(engine.record.steps.host_ns or [1])
    return max(4, min(200, int(1.5 * NS_PER_S / max(step_ns, 1))))


def warm_steps(engine: Engine) -> int:
    """While the profiler starts, loader workers fill their queues: a starved job must drain them."""
    steps = engine.record.steps
    waited = sum(steps.loader_ns) > WAITED_SHARE * sum(steps.host_ns)
    return settling_steps(engine) if waited else min(settling_steps(engine), WINDOW_WARM_STEPS)


class Plan(msgspec.Struct, frozen=True):
    """What all ranks are told, in a file."""

    trace_from: int
    steps: int
    ranks: list[int] | None = None  # those that are traced; None: all


class Agree:
    """All ranks trace the same steps: rank 0 says which, in a file, early enough for all to read it. Of many
    ranks it chooses first which are traced at all."""

    name = "agree"

    def __init__(self, engine: Engine) -> None:
        self.began = self.looked = perf_counter_ns()
        self.plan: Plan | None = None
        self.choice: Choice | None = None
        asked, folder = engine.options.trace_ranks, engine.settle_folder()
        if folder is None:
            return
        leads = engine.rank.speaks or folder.is_apart
        if is_sampled(asked, engine.rank.world_size):
            own = _timing(engine)
            if leads:
                self.choice = Choice(folder.path, asked, own, engine.rank.world_size)
            else:
                folder.write_timing(own)
        elif leads:
            self._make_plan(engine, named(asked))

    def _make_plan(self, engine: Engine, ranks: list[int] | None) -> None:
        notice, warm = _notice(engine), warm_steps(engine)
        window = plan_trace(engine, notice + warm)
        first = window.first - warm
        if engine.rank.spans:
            # A machine that sees no file of another's comes to the same step by itself, nearly always.
            apart = 1 << notice.bit_length()
            first = -(-first // apart) * apart
        self.plan = Plan(first, window.steps, ranks)
        if engine.folder is not None:
            write_atomically(engine.folder.plan_path, msgspec.json.encode(self.plan))

    def step(self, engine: Engine, now: int) -> None:
        if self.plan is None and now - self.looked > PLAN_LOOK_NS:
            self.looked = now
            self._look(engine)
        plan = self.plan
        if plan is None:
            if now - self.began > PLAN_WAIT_NS:
                without_trace(engine, "rank 0 named no step to trace from")
        elif plan.ranks is not None and engine.rank.rank not in plan.ranks:
            # What follows is of steps that no profiler holds up, on any rank.
            if engine.step_number > plan.trace_from + plan.steps + warm_steps(engine):
                without_trace(engine, "other ranks are traced in its place", others_are=True)
        elif engine.step_number == plan.trace_from:
            engine.enter(Tracing(engine, plan.steps))
        elif engine.step_number > plan.trace_from:
            without_trace(engine, "this rank learned of the traced steps too late")

    def _look(self, engine: Engine) -> None:
        if self.choice is not None:
            ranks = self.choice.ranks()
            if ranks is not None:
                self._make_plan(engine, ranks)
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError, AttributeError):
            self.plan = msgspec.json.decode(engine.folder.plan_path.read_bytes(), type=Plan)  # type: ignore[union-attr]

    def close(self, engine: Engine) -> None:
        ended_first(engine)


def _timing(engine: Engine) -> RankTiming:
    steps, record = engine.record.steps, engine.record
    times = steps.times()
    return RankTiming(
        record.rank,
        record.node,
        mean(times) if times else 0.0,
        mean(steps.loader_ns or [0]),
        mean(steps.gc_ns or [0]),
    )


class Tracing:
    """A few steps under the profiler."""

    name = "trace"

    def __init__(self, engine: Engine, at_once: int | None = None) -> None:
        """`at_once`: so many steps from here on, as the ranks agreed."""
        self.window = engine.window = TraceWindow(
            engine.torch, engine.profilers, engine.device is not None, engine.options.memory
        )
        self.began = perf_counter_ns()
        self.warm = self.warm_left = warm_steps(engine)
        plan = (
            plan_trace(engine, self.warm)
            if at_once is None
            else Window(engine.step_number + self.warm, at_once)
        )
        self.wanted = plan.steps
        # The profiler's machinery starts just before: steps are slower with it.
        self.prepare_at = max(plan.first - self.warm, engine.step_number)
        self.traced = 0
        self.first_step: int | None = None
        self.in_line_s: float | None = None  # until the recording began
        self.ended: list[int] = []
        if self.prepare_at <= engine.step_number:
            engine.safely(lambda: self._prepare(engine))

    def _prepare(self, engine: Engine) -> None:
        why = barred(engine.torch)
        if why:
            self._give_up(engine, why)
        else:
            self.window.prepare()

    def step(self, engine: Engine, now: int) -> None:
        engine.catch_up()  # no better moment came: inside the optimizer's hook then
        if engine.deferred is not None:
            self._give_up(engine, "steps end inside backward and no data loader offers another moment")
        elif engine.step_number >= self.prepare_at:
            engine.safely(lambda: self._advance(engine, now))

    def _advance(self, engine: Engine, now: int) -> None:
        if self.window.state == "aborted":
            self._give_up(engine, "the job's own profiler began")
        elif self.window.state == "new":
            self._prepare(engine)
        elif self.window.state == "prepared":
            self.warm_left -= 1
            if self.warm_left <= 0:
                self.first_step = engine.step_number
                self.in_line_s = neighbours.own_in_line_s()
                self.window.start(engine.step_number)
                self.ended.append(perf_counter_ns())
        elif self.window.state == "recording":
            self.traced += 1
            self.ended.append(now)
            if self.traced >= self.wanted or self._is_long(engine, now):
                self._finish(engine)
            else:
                self.window.next_step(engine.step_number)

    def _is_long(self, engine: Engine, now: int) -> bool:
        """Whether what is recorded would take long to write already. A kind's step needs those behind it."""
        recorded = now - self.ended[0]
        return not engine.kinds and self.traced >= FEWEST_TRACED and recorded > RECORDED_AT_MOST_NS

    def _give_up(self, engine: Engine, why: str) -> None:
        engine.deferred = None
        self.window.abort()
        without_trace(engine, why)

    def _finish(self, engine: Engine) -> None:
        self._keep(engine)
        save(engine)
        engine.enter(Observing(engine, after_trace))

    def _keep(self, engine: Engine) -> None:
        in_line_ns, in_line_s = None, neighbours.own_in_line_s()
        if self.in_line_s is not None and in_line_s is not None:
            in_line_ns = max(int((in_line_s - self.in_line_s) * NS_PER_S), 0)
        self.window.stop()
        if engine.options.memory and engine.folder is not None:
            engine.record.memory.known_at_trace = write_known(engine, "trace")
        trace = Trace(steps=self.traced, first_step=self.first_step, in_line_ns=in_line_ns)
        lengths = [after - before for before, after in pairwise(self.ended)]
        place = (self.first_step or 0) - engine.record.first_timed
        trace.kinds = labels_of_traced(engine.kinds, engine.usual_ns, lengths, place)
        engine.record.trace = trace
        if engine.folder is None:
            trace.why_not = "no run folder"
        else:
            self._export(engine, trace)
        engine.record.cost["trace"] = self._cost()
        engine.diary.held_up += self.window.prepare_ns + self.window.stop_ns + self.window.export_ns

    def _export(self, engine: Engine, trace: Trace) -> None:
        assert engine.folder is not None
        try:
            self.window.export(engine.folder.trace_path)
            trace.kernels = self.window.kernels
            if engine.record.samples_per_step is None:
                engine.micro_steps = micro_steps(engine, self.traced)
            if engine.device is not None and trace.kernels == 0:
                engine.folder.trace_path.unlink()
                trace.why_not = "the profiler gave no kernels"
                return
            trace.file = engine.folder.trace_path.name
            trace.captures, trace.replays = CAPTURES.keep(engine.folder.rank_path)
            if CAPTURES.failure:
                engine.note(CAPTURES.failure)
        except (OSError, RuntimeError) as error:  # a full disk, most of all
            trace.why_not = f"it could not be written ({error})"
            engine.note(f"the trace could not be written ({error})")

    def _cost(self) -> dict[str, float | bool]:
        window = self.window
        return {
            "profiler_stays": window.profiler_stays,
            "start_s": window.prepare_ns / NS_PER_S,
            "stop_s": window.stop_ns / NS_PER_S,
            "export_s": window.export_ns / NS_PER_S,
            "pause_s": (window.prepare_ns + window.stop_ns + window.export_ns) / NS_PER_S,
            "total_s": (perf_counter_ns() - self.began) / NS_PER_S,
        }

    def close(self, engine: Engine) -> None:
        if self.window.state == "recording" and self.traced >= 1:
            self._keep(engine)
        else:
            self.window.abort()
            ended_first(engine)


class Lines:
    """Where the host stands, from a sampler thread; not part of any timing."""

    name = "lines"

    def __init__(self, engine: Engine) -> None:
        self.skip = settling_steps(engine)
        # Over whole periods: what every tenth step does is then seen as often as it is done.
        self.lasts = max([LINES_AT_LEAST_NS, *(_period_ns(engine, kind) for kind in engine.kinds)])
        self.lasts = min(self.lasts, LINES_AT_MOST_NS)
        self.inputs = Inputs(engine.torch)
        wanted = engine.record.samples_per_step is None and engine.micro_steps is not None
        look = self.inputs.look if wanted else None
        self.sampler = LineSampler(engine.thread_id, self.lasts / NS_PER_S, look)
        self.began = 0

    def step(self, engine: Engine, now: int) -> None:
        if self.skip:
            self.skip -= 1
            if not self.skip:
                self.sampler.start()
                self.began = now
        elif self.sampler.finished or now - self.began > 2 * self.lasts:
            self.close(engine)
            if engine.options.last == "lines":
                finish(engine)
            else:
                engine.enter(Control(engine))

    def close(self, engine: Engine) -> None:
        self.sampler.stop()
        engine.record.host_lines = self.sampler.lines()
        count_inputs(engine, self.inputs)


def _period_ns(engine: Engine, kind: Kind) -> int:
    """From one step of this kind to the next."""
    steps = engine.record.steps
    return int(sum(steps.host_ns) / max(len(kind.rows), 1))
