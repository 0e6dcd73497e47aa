"""The measurement's stages, in order: warm-up, timing, lines, trace, control, done."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from math import sqrt
from statistics import mean, median, pstdev
from time import perf_counter_ns

import msgspec

from findwall.files import write_atomically
from findwall.measure import cost, machine
from findwall.measure.captures import CAPTURES
from findwall.measure.control import Control, finish, settling_steps
from findwall.measure.engine import Engine
from findwall.measure.inputs import Inputs, count_inputs, micro_steps
from findwall.measure.kinds import Kind, Window, find_kinds, labels, told_by
from findwall.measure.sampler import LineSampler
from findwall.measure.steptimer import measured_every
from findwall.measure.surroundings import look_around
from findwall.measure.threads import with_threads
from findwall.measure.traceplan import labels_of_traced, plan_trace
from findwall.measure.tracewindow import TraceWindow, barred
from findwall.measure.warmup import WINDOW, WarmupTest
from findwall.model.measurement import StepColumns, Trace
from findwall.model.measurement import Warmup as WarmupRecord

NS = 1_000_000_000
TIMED_STEPS = 30
TIMED_AT_LEAST_NS = 2 * NS  # a few milliseconds of steps would miss pauses and full queues
TIMED_AT_MOST_NS = 10 * NS
TIMED_AT_LEAST_STEPS = 5
NARROW_SHARE = 0.01  # of the mean: an interval this narrow needs no more steps
NARROW_STEPS = 10  # from fewer the interval itself is chance
KINDS_AT_MOST_NS = 20 * NS  # to see steps that stand out so often that their distance is known
EVALUATION_TOLD_STEPS = 2 * TIMED_AT_LEAST_STEPS  # from then on it shows whether an eval() is an evaluation
MOST_SHARE_AN_EVENT = 512
LINES_AT_LEAST_NS = NS
LINES_AT_MOST_NS = 6 * NS
WINDOW_WARM_STEPS = 2
WARMED_AT_LEAST = 2  # steps that are dropped even with the least --wait
SHORTER = (  # for short jobs, and the steps that are timed and traced then
    ("--wait 2 --steps 5", 8),
    ("--wait 1 --steps 1 --trace-steps 1", 2),
)
RECORDED_AT_MOST_NS = 5 * NS  # under the profiler: a million events at most
FEWEST_TRACED = 2  # one of them is counted
PLAN_WAIT_NS = 60 * NS
PLAN_LOOK_NS = 20_000_000  # between two looks for the plan: a file system is asked, not the device
# All chosen by hand, not calibrated.
CHECKED_STEPS = 10  # from fewer pairs the two clocks may differ by chance
CLOCKS_DIFFER_SHARE = 0.02  # of the window: device events and the host clock may be so far apart
WAITED_SHARE = 0.02  # of the step: a loader that is waited for longer is starved
NORMAL_95 = 1.96  # standard errors on either side of a mean that hold it 95 times in 100
LOOK_AGAIN = 8  # a look at the steps comes after an eighth more of them
MOSTLY = 0.5  # of the timed steps: what happens in more of them is no evaluation


class Warmup:
    """Until a test says that the job has settled."""

    name = "warm-up"

    def __init__(self, engine: Engine) -> None:
        engine.look_at_device()
        engine.telemetry.start(engine.torch, engine.device)  # its start-up is not for the timed steps
        self.timer = engine.new_timer()
        self.timer.start()
        self.began = perf_counter_ns()
        self.first = engine.step_number
        self.test = WarmupTest(self.began)

    def step(self, engine: Engine, now: int) -> None:
        compiles = engine.compilations.new()
        self.timer.end_step(now, compiles)
        wait = engine.options.wait
        if wait is not None:
            if engine.step_number >= wait:
                self._end(engine, now, None, "--wait")
            return
        reserved = machine.reserved_bytes(engine.torch, engine.device)
        settled = self.test.step(now, self.timer.recent(WINDOW), compiles, reserved)
        if settled is not None:
            self._end(engine, now, settled, "" if settled else self.test.reason)

    def _end(self, engine: Engine, now: int, settled: bool | None, why: str) -> None:
        engine.record.warmup = WarmupRecord(engine.step_number, (now - self.began) / NS, settled, why)
        if settled is False:
            engine.note(f"the job had not settled after {engine.step_number} steps: {why}")
        engine.enter(Timing(engine))

    def close(self, engine: Engine) -> None:
        """Too short a job: the later half of what was seen is the best there is."""
        self.timer.resolve()
        columns = self.timer.columns
        skipped = len(columns) // 2
        engine.record.steps = _tail(columns, skipped)
        engine.record.warmup = WarmupRecord(
            self.first + skipped, (perf_counter_ns() - self.began) / NS, None, self.test.reason
        )
        engine.note(
            f"the job ended after {engine.step_number} steps, before its warm-up was over: the figures are "
            "of its last steps"
        )
        ended_first(engine)


def _tail(columns: StepColumns, skipped: int) -> StepColumns:
    return StepColumns(**{name: getattr(columns, name)[skipped:] for name in columns.__struct_fields__})


class Timing:
    """Step times without the profiler."""

    name = "timing"

    def __init__(self, engine: Engine) -> None:
        engine.look_at_device()
        engine.telemetry.start(engine.torch, engine.device)
        engine.telemetry.pause(False)
        self.before = machine.allocator_counts(engine.torch, engine.device)
        lately = engine.timer.recent(8) if engine.timer is not None else []
        if lately:
            asked = engine.options.steps
            most = MOST_SHARE_AN_EVENT if asked is None else max(1, asked // 6)
            engine.every = min(measured_every(median(lately)), most)
        if engine.clock is not None:
            engine.clock.stock(2 * TIMED_STEPS)
        self.timer = engine.timed = engine.new_timer(at_once=False)
        self.timer.start()
        self.plain = 0  # steps without an evaluation inside
        self.looked = 0  # steps when it was last looked whether they are enough
        engine.record.first_timed = engine.step_number
        self.began = perf_counter_ns()
        engine.let_pass(engine.every - 1, engine.gauge)

    def step(self, engine: Engine, now: int) -> None:
        passed, spent = engine.take_passed()
        engine.gauge.hook_ns += spent
        self.timer.end_step(now, engine.compilations.new(), passed)
        self.plain += 0 if self.timer.columns.evaluated[-1] else 1 + len(passed)
        if self._enough(engine.options.steps, now):
            self.close(engine)
            after_timing(engine)
        else:
            engine.let_pass(engine.every - 1, engine.gauge)

    def cut(self, engine: Engine) -> None:
        """An evaluation begins: the steps that passed are timed now, the next is measured for itself."""
        timed = len(self.timer.columns)
        if timed > EVALUATION_TOLD_STEPS and self.plain <= MOSTLY * timed:
            return  # an eval() in most steps is no evaluation
        engine.gate.open()
        passed, spent = engine.take_passed()
        if passed:
            engine.gauge.hook_ns += spent
            self.timer.end_step(passed[-1], 0, passed[:-1])
            self.plain += len(passed)

    def _enough(self, asked: int | None, now: int) -> bool:
        timed = len(self.timer.columns)
        counted = self.plain if self.plain > timed // 2 else timed  # an eval() in most steps is no evaluation
        if asked is not None:
            return counted >= asked
        elapsed = now - self.began
        if counted < TIMED_AT_LEAST_STEPS or elapsed < TIMED_AT_LEAST_NS:
            return False
        if elapsed < TIMED_AT_MOST_NS and timed < self.looked + max(1, self.looked // LOOK_AGAIN):
            return False  # a look costs more than a step's end may
        self.looked = timed
        times = self.timer.columns.host_ns
        if told_by(times) is None and elapsed < KINDS_AT_MOST_NS:
            return False
        return elapsed >= TIMED_AT_MOST_NS or _mean_is_known(times)

    def close(self, engine: Engine) -> None:
        passed, _ = engine.take_passed()
        self.timer.end_unmeasured(passed)
        self.timer.resolve()
        record = engine.record
        record.steps = self.timer.columns
        self._tell_kinds(engine)
        record.optimizer_device_ns = self.timer.optimizer_device_ns
        record.peak_memory, record.total_memory = machine.memory(engine.torch, engine.device)
        after = machine.allocator_counts(engine.torch, engine.device)
        record.allocator = {name: after[name] - self.before.get(name, 0) for name in after}
        engine.telemetry.pause(True)
        record.telemetry = with_threads(engine.telemetry.summary(), engine.torch)
        record.cost.update(cost.describe(record.steps.hook_ns, record.steps.times()))
        _count_samples(engine)
        _check_clocks(engine)
        if engine.record.job_ended:
            ended_first(engine)

    def _tell_kinds(self, engine: Engine) -> None:
        steps = engine.record.steps
        if len(steps) == 0:
            return
        engine.usual_ns = median(steps.host_ns)
        apart = self.plain > MOSTLY * len(steps)  # evaluations are no steps: they are told beside them
        engine.kinds = find_kinds(
            [
                int(engine.usual_ns) if other and apart else ns
                for ns, other in zip(steps.host_ns, steps.evaluated, strict=True)
            ]
        )
        steps.kind = labels(engine.kinds, len(steps))


def _mean_is_known(times: list[int]) -> bool:
    """Whether more steps would say no more of the mean: within the kinds, for the mix of them is known."""
    count = len(times)
    if count >= TIMED_STEPS:
        return True
    if count < NARROW_STEPS:
        return False
    return NORMAL_95 * pstdev(times) / sqrt(count) <= NARROW_SHARE * mean(times)


def _count_samples(engine: Engine) -> None:
    """Samples a step, where the loader's batches say how many they hold."""
    steps = engine.record.steps
    plain = [count for count, other in zip(steps.batches, steps.evaluated, strict=True) if not other]
    # An evaluation has batches of its own.
    batches = plain if len(plain) > MOSTLY * len(steps) else steps.batches
    if engine.batch_size is not None and any(batches):
        size, unit = engine.batch_size
        engine.record.samples_per_step = size * sum(batches) / len(batches)
        engine.record.sample_unit = unit


def _check_clocks(engine: Engine) -> None:
    """Device events and the host clock must tell the same time over the window."""
    steps = engine.record.steps
    pairs = [(d, h) for d, h in zip(steps.device_ns, steps.host_ns, strict=True) if d is not None]
    if len(pairs) < CHECKED_STEPS:
        return
    device, host = sum(d for d, _ in pairs), sum(h for _, h in pairs)
    if abs(device - host) > CLOCKS_DIFFER_SHARE * host:
        engine.note(
            f"device events say {device / 1e6:.1f} ms and the host clock {host / 1e6:.1f} ms for the same "
            f"{len(pairs)} steps"
        )


def after_timing(engine: Engine) -> None:
    if engine.options.last == "timing":
        finish(engine)
        return
    look_around(engine)
    engine.save()
    why = "" if engine.options.trace else engine.options.why_no_trace
    why = why or barred(engine.torch)
    if why:
        without_trace(engine, why)
    elif engine.rank.world_size > 1:
        engine.enter(Agree(engine))
    else:
        engine.enter(Tracing(engine))


def without_trace(engine: Engine, why: str) -> None:
    engine.record.trace = Trace(why_not=why)
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
    return max(4, min(200, int(1.5 * NS / max(step_ns, 1))))


def warm_steps(engine: Engine) -> int:
    """While the profiler starts, loader workers fill their queues: a starved job must drain them."""
    steps = engine.record.steps
    waited = sum(steps.loader_ns) > WAITED_SHARE * sum(steps.host_ns)
    return settling_steps(engine) if waited else min(settling_steps(engine), WINDOW_WARM_STEPS)


class Agree:
    """All ranks trace the same steps: rank 0 says which, in a file, early enough for all to read it."""

    name = "agree"

    def __init__(self, engine: Engine) -> None:
        self.began = self.looked = perf_counter_ns()
        self.start: int | None = None
        self.steps: int | None = None
        if engine.rank.speaks:
            notice, warm = _notice(engine), warm_steps(engine)
            plan = plan_trace(engine, notice + warm)
            self.start, self.steps = plan.first - warm, plan.steps
            if engine.folder is not None:
                agreed = {"trace_from": self.start, "steps": self.steps}
                write_atomically(engine.folder.plan_path, msgspec.json.encode(agreed))

    def step(self, engine: Engine, now: int) -> None:
        if self.start is None and now - self.looked > PLAN_LOOK_NS:
            self.looked = now
            self._read_plan(engine)
        if self.start is None:
            if now - self.began > PLAN_WAIT_NS:
                without_trace(engine, "rank 0 named no step to trace from")
        elif engine.step_number == self.start:
            engine.enter(Tracing(engine, self.steps))
        elif engine.step_number > self.start:
            without_trace(engine, "this rank learned of the traced steps too late")

    def _read_plan(self, engine: Engine) -> None:
        with contextlib.suppress(OSError, msgspec.MsgspecError, AttributeError):
            plan = msgspec.json.decode(engine.folder.plan_path.read_bytes(), type=dict[str, int])  # type: ignore[union-attr]
            self.start, self.steps = plan.get("trace_from"), plan.get("steps")

    def close(self, engine: Engine) -> None:
        ended_first(engine)


class Tracing:
    """A few steps under the profiler."""

    name = "trace"

    def __init__(self, engine: Engine, at_once: int | None = None) -> None:
        """`at_once`: so many steps from here on, as the ranks agreed."""
        self.window = engine.window = TraceWindow(engine.torch, engine.profilers, engine.device is not None)
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
        engine.save()
        engine.enter(Lines(engine))

    def _keep(self, engine: Engine) -> None:
        self.window.stop()
        trace = Trace(steps=self.traced, first_step=self.first_step)
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
            "start_s": window.prepare_ns / NS,
            "stop_s": window.stop_ns / NS,
            "export_s": window.export_ns / NS,
            "pause_s": (window.prepare_ns + window.stop_ns + window.export_ns) / NS,
            "total_s": (perf_counter_ns() - self.began) / NS,
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
        self.sampler = LineSampler(engine.thread_id, self.lasts / NS, self.inputs.look if wanted else None)
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
        engine.record.host_samples = self.sampler.samples
        engine.record.host_lines = self.sampler.lines()
        count_inputs(engine, self.inputs)


def _period_ns(engine: Engine, kind: Kind) -> int:
    """From one step of this kind to the next."""
    steps = engine.record.steps
    return int(sum(steps.host_ns) / max(len(kind.rows), 1))
