"""Step times without the profiler: device events at step ends, never waited for, and the host clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

from findwall.agent.step_ends.step_gate import Gauge
from findwall.model.measurement import StepColumns

RESOLVE_AT_ONCE = 4  # events looked at in one go: the queue drains faster than it fills
RECORD_NS = 30_000  # of the host for one event, at most, where the launch queue has room
QUEUE_FULL_RATIO = 4  # times the fastest record: one that takes longer stood before a full queue; by hand
MEASURE_EVERY_NS = 250_000_000  # of the job from one measured step to the next: it costs up to 0.1 ms


class DeviceClock:
    """CUDA (or HIP) events from a small pool. Nothing here waits, and nothing here runs during a capture."""

    def __init__(self, torch: Any, device: int) -> None:
        self._event = torch.cuda.Event
        self._stream = torch.cuda.current_stream
        self._device = device
        self._capturing = torch.cuda.is_current_stream_capturing
        self._pool: list[Any] = []
        self._least_ns = RECORD_NS  # the fastest record so far: what one costs where the queue has room
        self._waited_ns = 0

    def stock(self, count: int) -> None:
        """Make events ahead of the steps that will use them; torch makes one when it is first recorded."""
        if self._capturing():
            return
        stream = self._stream(self._device)
        for _ in range(count - len(self._pool)):
            event = self._event(enable_timing=True)
            event.record(stream)
            self._pool.append(event)

    def record(self) -> Any | None:
        """An event on the current stream; None while a graph is captured there."""
        if self._capturing():
            return None
        event = self._pool.pop() if self._pool else self._event(enable_timing=True)
        began = perf_counter_ns()
        event.record(self._stream(self._device))
        spent = perf_counter_ns() - began
        self._least_ns = min(self._least_ns, spent)
        if spent > QUEUE_FULL_RATIO * self._least_ns:
            self._waited_ns += spent - self._least_ns
        return event

    def take_waited(self) -> int:
        """Time since the last call in which recording stood before a full launch queue.

        A job that is ahead of its device waits there in any case: the next launch would have.
        """
        waited, self._waited_ns = self._waited_ns, 0
        return waited

    def give_back(self, event: Any) -> None:
        self._pool.append(event)

    def done(self, event: Any) -> bool:
        return not self._capturing() and bool(event.query())

    def between(self, first: Any, last: Any) -> int | None:
        """Nanoseconds between two events that are done."""
        try:
            return int(first.elapsed_time(last) * 1e6)
        except RuntimeError:  # the two were recorded on different devices: there is no time between them
            return None


class _Block(NamedTuple):
    """Steps between two events."""

    rows: range
    first: Any
    last: Any


class StepTimer:
    """Columns of consecutive steps, from `start()` on.

    `at_once`: device times are read as the steps go by, for those who look at them meanwhile; else in
    `resolve`, once, so that the steps that are timed pay for recording alone.
    """

    def __init__(self, clock: DeviceClock | None, gauge: Gauge, at_once: bool = True) -> None:
        self.columns = StepColumns()
        self._clock = clock
        self._gauge = gauge
        self._at_once = at_once
        self._last_host = 0
        self._last_event: Any | None = None
        self._pending: deque[_Block] = deque()

    def start(self) -> None:
        """A boundary: the step before it is not counted."""
        self._gauge.reset()
        self._last_event = None if self._clock is None else self._clock.record()
        self._last_host = perf_counter_ns()

    def end_step(self, now: int, compiles: int = 0, passed: Sequence[int] = ()) -> None:
        """A step ended now, after others that `passed` at these times without being measured: they share the
        time on the device, and what the gauge holds."""
        self._add_rows([*passed, now], compiles)
        if self._clock is not None:
            self._end_on_device(self._clock, len(passed) + 1)

    def end_unmeasured(self, passed: Sequence[int]) -> None:
        """The job ended after steps that passed: only the host's clock knows them."""
        if passed:
            self._add_rows(passed, 0)

    def _add_rows(self, ends: Sequence[int], compiles: int) -> None:
        gauge, columns, count = self._gauge, self.columns, len(ends)
        columns.host_ns += [end - begin for begin, end in zip([self._last_host, *ends], ends, strict=False)]
        columns.device_ns += [None] * count
        columns.loader_ns += _shares(gauge.loader_ns, count)
        columns.gc_ns += _shares(gauge.gc_ns, count)
        columns.hook_ns += _shares(gauge.hook_ns, count)
        columns.batches += _shares(gauge.batches, count)
        columns.compiles += [*[0] * (count - 1), compiles]
        columns.evaluated += [gauge.evaluated] * count
        gauge.reset()
        self._last_host = ends[-1]

    def _end_on_device(self, clock: DeviceClock, count: int) -> None:
        event = clock.record()
        if event is not None and self._last_event is not None:
            rows = range(len(self.columns) - count, len(self.columns))
            self._pending.append(_Block(rows, self._last_event, event))
        self._last_event = event
        if self._at_once:
            self.resolve(RESOLVE_AT_ONCE)

    def resolve(self, at_most: int = 1_000_000) -> None:
        """Read what the device has passed already."""
        clock, pending = self._clock, self._pending
        if clock is None:
            return
        for _ in range(min(at_most, len(pending))):
            block = pending[0]
            if not clock.done(block.last):
                return
            pending.popleft()
            spent = clock.between(block.first, block.last)
            if spent is not None:
                count = len(block.rows)
                self.columns.device_ns[block.rows.start : block.rows.stop] = [spent // count] * count
            clock.give_back(block.first)

    def recent(self, count: int) -> list[int]:
        """The last steps' nanoseconds: by the device, as far as it has passed them, else by the host."""
        if self._clock is None:
            return self.columns.host_ns[-count:]
        known: list[int] = []
        for value in reversed(self.columns.device_ns):
            if value is not None:
                known.append(value)
                if len(known) == count:
                    break
        return known[::-1]


def measured_every(step_ns: float) -> int:
    """Of how many steps one is measured, so that measuring stays far below a percent of them."""
    return max(1, round(MEASURE_EVERY_NS / max(step_ns, 1.0)))


def _shares(total: int, count: int) -> list[int]:
    """The same for each, and the rest for the last: their sum stays."""
    each = total // count
    return [*[each] * (count - 1), total - each * (count - 1)]
