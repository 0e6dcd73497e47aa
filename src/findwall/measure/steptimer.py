"""Step times without the profiler: device events at step ends, never waited for, and the host clock."""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

from findwall.model.measurement import StepColumns

RESOLVE_AT_ONCE = 4  # events looked at in one go: the queue drains faster than it fills
OPTIMIZER_EVERY = 4  # recorded step ends between two that also time the optimizer on the device
RECORD_NS = 30_000  # of the host for one event, at most, where the launch queue has room
RECORD_EVERY_NS = 50_000_000  # of the job between two events: one costs up to 0.1 ms on a slow host


class Gauge:
    """What happened since the last step end. Written by the hooks, read and reset at the step's end."""

    __slots__ = ("batches", "evaluated", "gc_ns", "hook_ns", "loader_ns", "optimizer_ns")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.loader_ns = self.optimizer_ns = self.gc_ns = self.hook_ns = self.batches = 0
        self.evaluated = False


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
        self.lost = 0

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
        if spent > 4 * self._least_ns:
            self._waited_ns += spent - self._least_ns
        return event

    def take_waited(self) -> int:
        """Time since the last call in which recording stood before a full launch queue.

        A job that is ahead of its device waits there in any case: the next launch would have.
        """
        waited, self._waited_ns = self._waited_ns, 0
        return waited

    def give_back(self, event: Any | None) -> None:
        if event is not None:
            self._pool.append(event)

    def done(self, event: Any) -> bool:
        return not self._capturing() and bool(event.query())

    def between(self, first: Any, last: Any) -> int | None:
        """Nanoseconds between two events that are done."""
        try:
            return int(first.elapsed_time(last) * 1e6)
        except RuntimeError:  # the two were recorded on different devices: there is no time between them
            self.lost += 1
            return None


class StepTimer:
    """Columns of consecutive steps, from `start()` on.

    `at_once`: device times are read as the steps go by, for those who look at them meanwhile; else in
    `resolve`, once, so that the steps that are timed pay for recording alone. `every`: an event is recorded
    at the end of every so many steps, and each of those steps has their mean for its device time.
    """

    def __init__(self, clock: DeviceClock | None, gauge: Gauge, at_once: bool = True, every: int = 1) -> None:
        self.columns = StepColumns()
        self.optimizer_device_ns: list[int] = []
        self._clock = clock
        self._gauge = gauge
        self._at_once = at_once
        self._every = every
        self._last_host = 0
        self._last_event: Any | None = None
        self._optimizer_event: Any | None = None
        self._pending: deque[tuple[int, Any, Any, Any]] = deque()

    def start(self) -> None:
        """A boundary: the step before it is not counted."""
        self._gauge.reset()
        self._last_event = None if self._clock is None else self._clock.record()
        self._last_host = perf_counter_ns()

    def optimizer_began(self) -> None:
        ended = len(self.columns) + 1
        if (
            self._clock is not None
            and ended % self._every == 0
            and ended // self._every % OPTIMIZER_EVERY == 1
        ):
            self._optimizer_event = self._clock.record()

    def end_step(self, now: int, compiles: int = 0) -> None:
        gauge, columns = self._gauge, self.columns
        columns.host_ns.append(now - self._last_host)
        columns.device_ns.append(None)
        columns.loader_ns.append(gauge.loader_ns)
        columns.optimizer_ns.append(gauge.optimizer_ns)
        columns.gc_ns.append(gauge.gc_ns)
        columns.hook_ns.append(gauge.hook_ns)
        columns.batches.append(gauge.batches)
        columns.compiles.append(compiles)
        columns.evaluated.append(gauge.evaluated)
        gauge.reset()
        self._last_host = now
        if self._clock is not None and len(columns) % self._every == 0:
            self._end_on_device(self._clock)

    def _end_on_device(self, clock: DeviceClock) -> None:
        event = clock.record()
        if event is not None and self._last_event is not None:
            self._pending.append((len(self.columns) - 1, self._last_event, event, self._optimizer_event))
        self._optimizer_event = None
        self._last_event = event
        if self._at_once:
            self.resolve(RESOLVE_AT_ONCE)

    def resolve(self, at_most: int = 1_000_000) -> None:
        """Read what the device has passed already."""
        clock, pending = self._clock, self._pending
        if clock is None:
            return
        for _ in range(min(at_most, len(pending))):
            index, first, last, optimizer = pending[0]
            if not clock.done(last):
                return
            pending.popleft()
            block = clock.between(first, last)
            if block is not None:
                steps = min(self._every, index + 1)
                self.columns.device_ns[index + 1 - steps : index + 1] = [block // steps] * steps
            clock.give_back(first)
            if optimizer is not None:
                spent = clock.between(optimizer, last)
                if spent is not None:
                    self.optimizer_device_ns.append(spent)
                clock.give_back(optimizer)

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


def record_every(step_ns: float) -> int:
    """Steps from one event to the next, so that recording stays far below a percent of them."""
    return max(1, round(RECORD_EVERY_NS / max(step_ns, 1.0)))
