"""The measurement's first stages, warm-up and timing. Behind them come trace, lines, control, done."""

from __future__ import annotations

import os
from itertools import groupby
from math import sqrt
from statistics import mean, median, pstdev
from time import perf_counter_ns

from findwall.agent.engine import Engine
from findwall.agent.stages.switched_blocks import ScreeningStage
from findwall.agent.stages.trace_stages import after_timing, ended_first
from findwall.agent.timing import cost
from findwall.agent.timing.step_kinds import find_kinds, labels, told_by
from findwall.agent.timing.steptimer import measured_every
from findwall.agent.timing.warmup import WINDOW, WarmupTest
from findwall.apply.live_threads import with_threads
from findwall.machine import peak_meters
from findwall.machine import torch_device as machine
from findwall.model.arms import SWEEP
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MENTION_SHARE
from findwall.model.kinds import belongs_to_step
from findwall.model.measurement import StepColumns
from findwall.model.measurement import Warmup as WarmupRecord
from findwall.units import NS_PER_S

TIMED_STEPS = 30
TIMED_AT_LEAST_NS = 2 * NS_PER_S  # a few milliseconds of steps would miss pauses and full queues
TIMED_AT_MOST_NS = 10 * NS_PER_S
TIMED_AT_LEAST_STEPS = 5
FEW_STEPS = 10  # from fewer an interval, a difference of two clocks or how often something happens is chance
KINDS_AT_MOST_NS = 20 * NS_PER_S  # to see steps that stand out so often that their distance is known
MOST_SHARE_AN_EVENT = 512
# All chosen by hand, not calibrated.
CLOCKS_DIFFER_SHARE = 0.02  # of the window: device events and the host clock may be so far apart
NORMAL_95 = 1.96  # standard errors on either side of a mean that hold it 95 times in 100
LOOK_AGAIN = 8  # a look at the steps comes after an eighth more of them


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
        engine.record.warmup = WarmupRecord(engine.step_number, (now - self.began) / NS_PER_S, settled, why)
        if settled is False:
            engine.note(f"the job had not settled after {engine.step_number} steps: {why}")
        engine.enter(ScreeningStage(engine) if engine.live.names else Timing(engine))

    def close(self, engine: Engine) -> None:
        """Too short a job: the later half of what was seen is the best there is."""
        self.timer.resolve()
        columns = self.timer.columns
        skipped = len(columns) // 2
        engine.record.steps = _tail(columns, skipped)
        engine.record.warmup = WarmupRecord(
            self.first + skipped, (perf_counter_ns() - self.began) / NS_PER_S, None, self.test.reason
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
        engine.memory.stop_recording()
        engine.look_at_device()
        engine.telemetry.start(engine.torch, engine.device)
        engine.telemetry.pause(False)
        engine.loading.start()
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
        self.wants_kinds = SWEEP not in os.environ  # one asks for the mean, of each of many sizes
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
        if timed > FEW_STEPS and self.plain <= MAJORITY_SHARE * timed:
            return  # an eval() in most steps is no evaluation
        engine.gate.open()
        passed, spent = engine.take_passed()
        if passed:
            engine.gauge.hook_ns += spent
            self.timer.end_step(passed[-1], 0, passed[:-1])
            self.plain += len(passed)

    def _enough(self, asked: int | None, now: int) -> bool:
        timed = len(self.timer.columns)
        counted = self.plain if self.plain > MAJORITY_SHARE * timed else timed  # an eval() in most is none
        if asked is not None:
            return counted >= asked
        elapsed = now - self.began
        if counted < TIMED_AT_LEAST_STEPS or elapsed < TIMED_AT_LEAST_NS:
            return False
        if elapsed < TIMED_AT_MOST_NS and timed < self.looked + max(1, self.looked // LOOK_AGAIN):
            return False  # a look costs more than a step's end may
        self.looked = timed
        times = self.timer.columns.host_ns
        if self.wants_kinds and told_by(times) is None and elapsed < KINDS_AT_MOST_NS:
            return False
        return elapsed >= TIMED_AT_MOST_NS or _mean_is_known(times)

    def close(self, engine: Engine) -> None:
        passed, _ = engine.take_passed()
        self.timer.end_unmeasured(passed)
        self.timer.resolve()
        record = engine.record
        record.steps = self.timer.columns
        self._tell_kinds(engine)
        record.peak_memory, record.total_memory = machine.memory(engine.torch, engine.device)
        record.peak_reserved = machine.reserved_peak(engine.torch, engine.device)
        record.peak_resident = peak_meters.pages()
        if record.peak_memory is not None:  # the job may have made the allocator forget it
            record.peak_memory = max(record.peak_memory, engine.memory.totals.columns.peak or 0)
        engine.telemetry.pause(True)
        record.telemetry = engine.loading.stop(with_threads(engine.telemetry.summary(), engine.torch))
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
        if not _in_pace(steps):
            engine.usual_ns = mean(steps.times())
            return
        evaluated = [row for row, other in enumerate(steps.evaluated) if other]
        apart = set() if belongs_to_step(evaluated, len(steps)) else set(evaluated)  # told beside the steps
        times = [int(engine.usual_ns) if row in apart else ns for row, ns in enumerate(steps.host_ns)]
        engine.kinds = find_kinds(times)
        steps.kind = labels(engine.kinds, len(steps))


def _in_pace(steps: StepColumns) -> bool:
    """Whether the host ends steps as the device does. One that runs ahead, and waits at every n-th step that
    it reads something from, ends them in bursts: kinds that its clock alone shows are none."""
    device = off = 0
    for told, group in groupby(zip(steps.device_ns, steps.host_ns, strict=True), key=lambda pair: pair[0]):
        if told is None:
            continue
        ended = [ns for _, ns in group]
        device += told * len(ended)
        off += abs(told * len(ended) - sum(ended))
    return device == 0 or off <= FAIR_PART * device


def _mean_is_known(times: list[int]) -> bool:
    """Whether more steps would say no more of the mean: within the kinds, for the mix of them is known."""
    count = len(times)
    if count >= TIMED_STEPS:
        return True
    if count < FEW_STEPS:
        return False
    return NORMAL_95 * pstdev(times) / sqrt(count) <= MENTION_SHARE * mean(times)


def _count_samples(engine: Engine) -> None:
    """Samples a step, where the loader's batches say how many they hold."""
    steps = engine.record.steps
    plain = [count for count, other in zip(steps.batches, steps.evaluated, strict=True) if not other]
    # An evaluation has batches of its own.
    batches = plain if len(plain) > MAJORITY_SHARE * len(steps) else steps.batches
    if engine.batch_size is not None and any(batches):
        size, unit = engine.batch_size
        engine.record.samples_per_step = size * sum(batches) / len(batches)
        engine.record.sample_unit = unit


def _check_clocks(engine: Engine) -> None:
    """Device events and the host clock must tell the same time over the window."""
    steps = engine.record.steps
    pairs = [(d, h) for d, h in zip(steps.device_ns, steps.host_ns, strict=True) if d is not None]
    if len(pairs) < FEW_STEPS:
        return
    device, host = sum(d for d, _ in pairs), sum(h for _, h in pairs)
    if abs(device - host) > CLOCKS_DIFFER_SHARE * host:
        engine.note(
            f"device events say {device / 1e6:.1f} ms and the host clock {host / 1e6:.1f} ms for the same "
            f"{len(pairs)} steps"
        )
