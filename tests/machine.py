"""A small machine that runs a job and writes its trace: a host, some streams, and calls that wait.

`sketch` draws what a trace shows. This one knows what waits for what, so it can run the same job with
something changed and say what the step then really is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace

from book import Book
from findwall.model.events import Kind, Timeline
from findwall.units import NS_PER_US

LATENCY, TURNAROUND, TAIL, CALL = 6_000, 1_000, 2_000, 3_000  # ns
WARM_UP, TRACED = 8, 4  # steps
MAIN, AUTOGRAD = 0, 1  # threads
STREAMS = (7, 8, 9)


class Do(msgspec.Struct, frozen=True):
    """One thing a job does. `us`: how long the host works or the device row runs."""

    what: str  # "work", "launch", "copy", "sync", "wait", "batch" or the name of a recorded range
    us: float = 0.0
    stream: int = 7
    on: int = 7  # "wait": the stream whose work is waited for
    rows: int = 1  # "launch": rows of one launch
    thread: int = MAIN


class Machine(Book):
    """Runs actions one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.free: dict[int, int] = defaultdict(int)
        self.event: dict[int, int] = defaultdict(int)
        self.batches = 0

    def do(self, one: Do) -> None:
        run = getattr(self, f"_{one.what}", None)
        if run is None:
            self._host(Kind.ANNOTATION, one.what, int(one.us * NS_PER_US), one.thread)
        else:
            run(one)

    def _host(self, kind: Kind, name: str, length: int, thread: int, correlation: int = -1) -> None:
        self._add(kind, name, self.now, self.now + length, thread=thread, correlation=correlation)
        self.now += length

    def _row(self, kind: Kind, name: str, one: Do, issued: int) -> int:
        stream = one.stream
        start = max(self.free[stream] + TURNAROUND, issued + LATENCY, self.event.pop(stream, 0))
        end = start + int(one.us * NS_PER_US)
        columns = {"correlation": self.correlation, "device": 0, "stream": stream, "thread": 100 + stream}
        self._add(kind, name, start, end, **columns)
        self.free[stream] = end
        return end

    def _work(self, one: Do) -> None:
        self._host(Kind.OP, "aten::view", int(one.us * NS_PER_US), one.thread)

    def _silence(self, one: Do) -> None:
        self.now += int(one.us * NS_PER_US)

    def _launch(self, one: Do) -> None:
        self.correlation += 1
        issued = self.now
        self._add(Kind.OP, "aten::mul", issued, issued + CALL, thread=one.thread)
        self._host(Kind.RUNTIME, "cudaLaunchKernel", CALL, one.thread, self.correlation)
        for _ in range(one.rows):
            self._row(Kind.KERNEL, "mul_kernel", one, issued)

    def _copy(self, one: Do) -> None:
        self.correlation += 1
        issued = self.now
        end = self._row(Kind.MEMCPY, "Memcpy HtoD (Pageable -> Device)", one, issued)
        self._host(Kind.RUNTIME, "cudaMemcpyAsync", end + TAIL - issued, one.thread, self.correlation)

    def _sync(self, one: Do) -> None:
        busy = max(self.free.values(), default=0)
        left = max(self.now + TAIL, busy + TAIL)
        self._host(Kind.RUNTIME, "cudaDeviceSynchronize", left - self.now, one.thread)

    def _wait(self, one: Do) -> None:
        self.event[one.stream] = max(self.event[one.stream], self.free[one.on] + TURNAROUND)
        self._host(Kind.RUNTIME, "cudaStreamWaitEvent", CALL, one.thread)

    def _batch(self, one: Do) -> None:
        """Worker processes make a batch every `us`."""
        self.batches += 1
        ready = max(self.batches * int(one.us * NS_PER_US), self.now + CALL)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._host(Kind.ANNOTATION, name, ready - self.now, one.thread)


def run(
    job: Sequence[Do], traced: int = TRACED, warm_up: int = WARM_UP, unseen_us: float | None = None
) -> Timeline:
    """The trace of a job's steps, which begins where the warm-up ends, as a profiler's does.

    `unseen_us`: the trace is a slice that holds no row launched before it, and the device is still busy for
    so long with those when it begins.
    """
    machine, begins = Machine(), []
    for at in range(warm_up + traced):
        begins.append(machine.now)
        if at == warm_up and unseen_us is not None:
            for stream in STREAMS:
                machine.free[stream] = max(machine.free[stream], machine.now + int(unseen_us * NS_PER_US))
        for one in job:
            machine.do(one)
    for at, (start, end) in enumerate(
        zip(begins[warm_up:], [*begins[warm_up + 1 :], machine.now], strict=True)
    ):
        machine._add(Kind.ANNOTATION, f"ProfilerStep#{at}", start, end)
    whole = machine.timeline()
    events = whole.events
    order = np.argsort(events.start, kind="stable")
    seen = (events.start >= begins[warm_up]) | (events.device >= 0)
    if unseen_us is not None:
        launched = events.correlation[(events.device < 0) & (events.start >= begins[warm_up])]
        seen &= (events.device < 0) | np.isin(events.correlation, launched[launched >= 0])
    return replace(whole, events=events.take(order[seen[order]]))


def period(job: Sequence[Do]) -> float:
    """How long a step of the job takes in the long run, in ns."""
    machine, reached = Machine(), []
    for _ in range(300):  # who is slower by a microsecond a step takes this long to show
        for one in job:
            machine.do(one)
        reached.append(max([*machine.free.values(), 0]))
    return (reached[-1] - reached[199]) / 100


US = st.integers(1, 80)
ACTIONS = st.one_of(
    st.builds(Do, st.just("work"), US),
    st.builds(Do, st.just("launch"), US, st.sampled_from(STREAMS)),
    st.builds(Do, st.just("launch"), US),
    st.builds(Do, st.just("copy"), US),
    st.builds(Do, st.just("sync")),
)
JOBS = st.lists(ACTIONS, min_size=1, max_size=12).map(lambda actions: [Do("launch", 5), *actions])
