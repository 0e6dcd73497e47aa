"""The control stage: after the trace window, is a step what it was, and what do the hooks cost?"""

from __future__ import annotations

from math import ceil
from statistics import mean, median
from time import perf_counter_ns

from findwall.agent.engine import Engine
from findwall.agent.step_ends.step_gate import Gauge
from findwall.agent.timing import cost
from findwall.agent.timing.steptimer import StepTimer
from findwall.agent.timing.telemetry import TELEMETRY_PERIOD_S
from findwall.units import NS_PER_S

# How long the control may go on, in time and in pairs of blocks. Both chosen by hand.
CONTROL_NS = 12 * NS_PER_S
CONTROL_AT_LEAST_NS = 2 * NS_PER_S
VERDICT_WITHIN_NS = 45 * NS_PER_S  # of the first step: the verdict's own time comes on top
LONGEST_BLOCK_NS = NS_PER_S
MOST_PAIRS = 320
LOOK_AT_PAIRS = tuple(10 * 2**power for power in range(6))  # a look costs their square, so ever rarer
HALF_WIDTH = 0.004  # of a step, on either side of findwall's cost: enough to tell one percent
MOST_STEPS_SKIPPED = 40  # while queues settle; chosen by hand
DENSEST = 10  # times as often as usual findwall measures in a block with its hooks on
# Steps this long have no queue to fill. Chosen by hand.
LONG_STEPS = 3
LONG_STEPS_NS = 6 * NS_PER_S
BLOCKS_A_ROUND, OFF_BLOCKS = 4, (1, 2)  # on, off, off, on


class Control:
    """Blocks of steps with the hooks on and off (shadow steps), on-off-off-on, so that drift cancels.

    Where only one step in many is measured, its cost would drown in the noise of the others. So with the
    hooks on everything is done several times as often (`denser`), and the difference divided by that. With
    the hooks off steps are still counted, and the ends of blocks timed: our own clock says what that takes,
    and it is added.
    """

    name = "control"

    def __init__(self, engine: Engine) -> None:
        engine.telemetry.pause(True)
        if engine.window is not None:
            engine.window.forget()
        timed = engine.record.steps.host_ns
        asked = engine.options.steps
        step_ns = median(timed) if timed else 1e7
        stride = ceil(engine.every / DENSEST)
        self.let_pass = stride - 1  # between two measured steps of a block with the hooks on
        self.denser = engine.every / stride
        self.length = stride * cost.block_length(stride * step_ns)
        if asked is not None:
            self.length = max(1, min(self.length, asked // 6))
        # Like is compared with like: a block holds whole periods of steps that come in kinds.
        self.comparable = True
        for kind in engine.kinds:
            self.length = ceil(self.length / (kind.every or 1)) * (kind.every or 1)
            self.comparable &= kind.every is not None
        self.comparable &= len(engine.kinds) == 0 or self.length * mean(timed) <= LONGEST_BLOCK_NS
        since = perf_counter_ns() - (engine.diary.first_step or perf_counter_ns())
        self.at_most = min(max(VERDICT_WITHIN_NS - since, CONTROL_AT_LEAST_NS), CONTROL_NS)
        self.skip = 1
        self.limit = None if asked is None else self.skip + max(12 * self.length, 2 * asked)
        self.on_device = engine.clock is not None
        self.seen = self.left = self.block = 0
        self.unsampled_ns = 0.0
        self.counting_ns = self.lean_ns = self.lean_steps = 0
        self.began = self.block_began = perf_counter_ns()
        # The same work a measured step as when steps were timed; what it reads is not looked at.
        self.timer = StepTimer(engine.clock, engine.gauge, at_once=False)
        self.ends = StepTimer(engine.clock, Gauge())  # the ends of blocks, timed alike with hooks on or off

    def step(self, engine: Engine, now: int) -> None:
        passed, spent = engine.take_passed()
        self.seen += 1 + len(passed)
        if self.skip:
            self.skip -= 1
            if not self.comparable:
                self.finish(engine)
            elif not self.skip:
                self._begin(engine)
            return
        self.lean_ns += spent
        self.lean_steps += len(passed)
        self.left -= 1 + len(passed)
        if not _is_off(self.block):
            self.timer.end_step(now, engine.compilations.new(), passed)
            if self.left:
                engine.let_pass(min(self.let_pass, self.left - 1))
                return
        else:
            self.counting_ns += spent + engine.gauge.hook_ns
            engine.gauge.reset()
            if self.left:  # the gate was opened before its time
                engine.let_pass(self.left - 1)
                return
        self._end_block(engine, now)

    def _end_block(self, engine: Engine, now: int) -> None:
        self.ends.end_step(now)
        if not _is_off(self.block):
            self.unsampled_ns += (now - self.block_began) * self.denser
        self.block += 1
        if self._enough(now):
            self.finish(engine)
        else:
            self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        self.left = self.length
        self.block_began = perf_counter_ns()
        if _is_off(self.block):
            engine.timer = None
            engine.let_pass(self.length - 1)
        else:
            engine.timer = self.timer
            if self.unsampled_ns >= TELEMETRY_PERIOD_S * NS_PER_S:
                self.unsampled_ns = 0.0
                engine.telemetry.sample_now()
            engine.let_pass(min(self.let_pass, self.length - 1))
        self.ends.start()

    def _enough(self, now: int) -> bool:
        if self.block % 2:
            return False
        pairs = self.block // 2
        if pairs >= MOST_PAIRS or now - self.began > self.at_most:
            return True
        if self.limit is not None and self.seen >= self.limit:
            return True
        if pairs not in LOOK_AT_PAIRS:
            return False
        interval = cost.shadow_interval(self.pairs())
        return interval is not None and interval[2] - interval[0] < 2 * HALF_WIDTH * self.denser

    def pairs(self) -> list[tuple[float, float]]:
        """Block times with the hooks on and off, by the device where there is one: the host's clock would
        take waiting before a full queue for work."""
        times = self._block_times()
        made = []
        for first in range(0, len(times) - 1, 2):
            a, b = times[first], times[first + 1]
            if a is not None and b is not None:
                made.append((float(b), float(a)) if _is_off(first) else (float(a), float(b)))
        return made

    def _block_times(self) -> list[int | None]:
        columns = self.ends.columns
        return columns.device_ns if self.on_device else list(columns.host_ns)

    def _steps_after(self) -> list[int]:
        """Steps after the trace, as means of blocks with the hooks off."""
        times = self._block_times()
        kept = [value for block, value in enumerate(times) if value is not None and _is_off(block)]
        return [value // self.length for value in kept]

    def _shadow(self) -> cost.Shadow | None:
        pairs = self.pairs()
        off_blocks = sum(_is_off(block) for block in range(len(self.ends.columns)))
        if not off_blocks:
            return None
        lean = self.lean_ns / self.lean_steps if self.lean_steps else 0.0
        return cost.Shadow(pairs, self.denser, self.counting_ns / off_blocks, lean * self.length)

    def finish(self, engine: Engine) -> None:
        self.close(engine)
        finish(engine)

    def close(self, engine: Engine) -> None:
        _let_go(engine)
        self.ends.resolve()
        record = engine.record
        record.cost.update(
            cost.describe(record.steps.hook_ns, record.steps.times(), self._shadow(), self._steps_after())
        )


def finish(engine: Engine) -> None:
    """All that was asked for is measured."""
    _let_go(engine)
    engine.telemetry.stop()
    engine.finished()


def _let_go(engine: Engine) -> None:
    engine.gate.open()
    engine.take_passed()
    engine.timer = None
    if engine.timed is not None:
        engine.timed.resolve()


def settling_steps(engine: Engine) -> int:
    """Steps until the queues that filled during a pause (the profiler's start, the export) are as before."""
    if engine.prefetched == 0 and sum(engine.record.steps.host_ns[-LONG_STEPS:]) > LONG_STEPS_NS:
        return 1  # steps of seconds have no queue to fill, and each one less is a gain
    return max(2, min(engine.prefetched + 1, MOST_STEPS_SKIPPED))


def _is_off(block: int) -> bool:
    return block % BLOCKS_A_ROUND in OFF_BLOCKS
