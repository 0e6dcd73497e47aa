"""The control phase: after the trace window, is a step what it was, and what do the hooks cost?"""

from __future__ import annotations

from statistics import median
from time import perf_counter_ns

from findwall.measure import cost
from findwall.measure.engine import Engine
from findwall.measure.steptimer import Gauge, StepTimer

NS = 1_000_000_000
AT_MOST_NS = 12 * NS
PAIRS = 320
LOOK_AT = tuple(10 * 2**power for power in range(6))  # pairs: a look costs their square, so ever rarer
HALF_WIDTH = 0.004  # enough to tell one percent
SKIP_AT_MOST = 40


class Control:
    """Blocks of steps with the hooks on and off (shadow steps), on-off-off-on, so that drift cancels."""

    name = "control"

    def __init__(self, engine: Engine) -> None:
        engine.telemetry.pause(False)
        timed = engine.record.steps.host_ns
        asked = engine.options.steps
        self.length = cost.block_length(median(timed) if timed else 1e7)
        if asked is not None:
            self.length = max(1, min(self.length, asked // 6))
        self.skip = 1
        self.limit = None if asked is None else self.skip + max(12 * self.length, 2 * asked)
        self.on_device = engine.clock is not None
        self.seen = self.left = 0
        self.block = 0
        self.began = perf_counter_ns()
        # The same work a step as when steps were timed; what it reads is not looked at.
        self.timer = StepTimer(engine.clock, engine.gauge, at_once=False, every=engine.record_every)
        self.ends = StepTimer(engine.clock, Gauge())  # the ends of blocks, timed alike with hooks on or off

    def step(self, engine: Engine, now: int) -> None:
        self.seen += 1
        if self.skip:
            self.skip -= 1
            if not self.skip:
                self._begin(engine)
            return
        if not engine.quiet:
            self.timer.end_step(now, engine.compilations.new())
        self.left -= 1
        if self.left:
            return
        self.ends.end_step(now)
        self.block += 1
        if self._enough(now):
            self.finish(engine)
        else:
            self._begin(engine)

    def _begin(self, engine: Engine) -> None:
        engine.quiet = _is_off(self.block)
        engine.timer = None if engine.quiet else self.timer
        engine.telemetry.pause(engine.quiet)
        self.left = self.length
        self.ends.start()

    def _enough(self, now: int) -> bool:
        if self.block % 2:
            return False
        pairs = self.block // 2
        if pairs >= PAIRS or now - self.began > AT_MOST_NS:
            return True
        if self.limit is not None and self.seen >= self.limit:
            return True
        if pairs not in LOOK_AT:
            return False
        interval = cost.shadow_interval(self.pairs())
        return interval is not None and interval[2] - interval[0] < 2 * HALF_WIDTH

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
        """Steps after the trace, with the hooks on as before it, as means of blocks."""
        times = self._block_times()
        kept = [value for block, value in enumerate(times) if value is not None and not _is_off(block)]
        return [value // self.length for value in kept]

    def finish(self, engine: Engine) -> None:
        self.close(engine)
        engine.telemetry.stop()
        engine.finished()

    def close(self, engine: Engine) -> None:
        engine.quiet = False
        engine.timer = None
        self.ends.resolve()
        if engine.timed is not None:
            engine.timed.resolve()
        record = engine.record
        record.control = self.ends.columns  # a row a block
        record.cost.update(
            cost.describe(record.steps.hook_ns, record.steps.times(), self.pairs(), self._steps_after())
        )


def settling_steps(engine: Engine) -> int:
    """Steps until the queues that filled during a pause (the profiler's start, the export) are as before."""
    if engine.prefetched == 0 and sum(engine.record.steps.host_ns[-3:]) > 6 * NS:
        return 1  # steps of seconds have no queue to fill, and each one less is a gain
    return max(2, min(engine.prefetched + 1, SKIP_AT_MOST))


def _is_off(block: int) -> bool:
    return block % 4 in (1, 2)
