"""The trace window: a few steps under torch.profiler, its start-up paid outside every timing."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from findwall.agent.forks import profiler_started
from findwall.agent.tracing.graph_captures import CAPTURES
from findwall.agent.tracing.kineto import quiet
from findwall.apply.registry import REGISTRY, Put, undo_all

# Set by Nsight tools in the processes they watch: CUPTI has one owner.
TAKEN_BY = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "CUDA_INJECTION64_PATH": "another CUDA tool",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute",
}


class JobProfilers:
    """The profilers the job makes for itself. They come first."""

    def __init__(self) -> None:
        self.starting_ours = False
        self.seen = False  # the job has traced, or is about to
        self.marks_steps = False  # a torch.profiler.profile is open: it writes ProfilerStep ranges of its own


def barred(torch: Any, environ: Mapping[str, str] | None = None) -> str:
    """Why there can be no trace now; empty if there can."""
    environ = os.environ if environ is None else environ
    for name, owner in TAKEN_BY.items():
        if environ.get(name):
            return f"{owner} watches this process ({name} is set)"
    if not torch.profiler.kineto_available():
        return "this torch was built without a profiler"
    if torch.autograd._profiler_enabled() or getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
        return "the job's own profiler is running"
    return ""


def _quiet(torch: Any) -> dict[str, bool]:
    """Newer torch warns on the job's stderr that a session keeps only its own events, unless asked."""
    known = inspect.signature(torch.profiler._KinetoProfile.__init__).parameters
    return {"acc_events": True} if "acc_events" in known else {}


# In an exported trace: the category of each kernel, and the op that ends a parameter's backward pass.
KERNEL, GRADIENT = b'"kernel"', b'"torch::autograd::AccumulateGrad"'
OP = b'"cpu_op"'
PART_BYTES = 1 << 24
TEARDOWN = "TEARDOWN_CUPTI"  # kineto asks for it when a session ends


class Detaching:
    """CUPTI that stays in a process costs every later launch 4 us: have it leave with our session.

    Older torch lets it stay unless asked. Before CUDA 12.6 its leaving crashed jobs with CUDA graphs; and a
    job that traces by itself needs it again at once, and pays for it anyway.
    """

    def __init__(self, torch: Any, job: JobProfilers) -> None:
        version = str(getattr(torch.version, "cuda", None) or "0").split(".")
        numbers = tuple(int(part) for part in version[:2] if part.isdigit())
        self._puts: list[Put] = []
        self._wanted = numbers >= (12, 6) and not job.seen and TEARDOWN not in os.environ

    @property
    def stays(self) -> bool:
        """It will still be there when we are done."""
        return not self._wanted and os.environ.get(TEARDOWN) != "1"

    def begin(self) -> None:
        if self._wanted:
            os.environ[TEARDOWN] = "1"
            back = functools.partial(os.environ.pop, TEARDOWN, None)
            self._puts.append(REGISTRY.hold("session", f"os.environ: {TEARDOWN}", back))

    def end(self) -> None:
        """As it was for the job, whose own sessions are its own matter."""
        undo_all(self._puts)


class TraceWindow:
    """One profiler session. All calls come from the thread that trains."""

    def __init__(self, torch: Any, job: JobProfilers, gpu: bool, memory: bool = False) -> None:
        """`memory`: with what the allocator does, which the trace's header then says."""
        self._torch, self._options = torch, {"record_shapes": True, **_quiet(torch)}
        if memory:
            self._options["profile_memory"] = True
        self._job = job
        self._gpu = gpu
        self._detaching = Detaching(torch, job)
        self._profile: Any | None = None
        self._range: Any | None = None
        self.state = "new"  # new, prepared, recording, stopping, stopped, aborted
        self.kernels: int | None = None  # in the file, once there is one
        self.gradients = 0  # in the file: parameters whose gradient was added up
        self.ops = 0  # in the file
        self.prepare_ns = self.stop_ns = self.export_ns = 0

    def prepare(self) -> None:
        """Start the profiler's machinery: seconds, the first time in a process. Nothing is kept yet."""
        began = perf_counter_ns()
        activity = self._torch.profiler.ProfilerActivity
        activities = [activity.CPU, *([activity.CUDA] if self._gpu else [])]
        self._job.starting_ours = True
        self._detaching.begin()
        try:
            self._profile = self._torch.profiler._KinetoProfile(activities=activities, **self._options)
            profiler_started()
            self._profile.prepare_trace()
        finally:
            self._job.starting_ours = False
        self.state = "prepared"
        self.prepare_ns = perf_counter_ns() - began

    def start(self, step: int) -> None:
        assert self._profile is not None
        began = perf_counter_ns()
        with quiet(self._torch):
            self._profile.start_trace()
        CAPTURES.window(True)
        self.state = "recording"
        self._open_step(step)
        self.prepare_ns += perf_counter_ns() - began

    def next_step(self, step: int) -> None:
        self._close_step()
        self._open_step(step)

    def _open_step(self, step: int) -> None:
        if self._job.marks_steps:
            return  # two sets of step ranges would tell nothing
        self._range = self._torch.autograd.profiler.record_function(f"ProfilerStep#{step}")
        self._range.__enter__()

    def _close_step(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def stop(self) -> None:
        """End the session. The profiler waits for the device here, so that the last kernels are in."""
        assert self._profile is not None
        began = perf_counter_ns()
        self._close_step()
        CAPTURES.window(False)
        self._keep_raw()
        # Before the call: Ctrl-C may fall into it, and a session that is ended twice takes the process down.
        self.state = "stopping"
        with quiet(self._torch):
            self._profile.stop_trace()
        self.state = "stopped"
        self.stop_ns = perf_counter_ns() - began

    def _keep_raw(self) -> None:
        """A session told to keep its events makes a Python object of each when it ends, with the job stopped.
        The exported file needs none of them: without, the end took an H200 job 40 to 120 us for each kernel,
        with them 420 to 850."""
        session: Any = getattr(self._profile, "profiler", None)
        if hasattr(session, "acc_events"):
            session.acc_events = False

    def abort(self) -> None:
        """Make room for the job's own profiler."""
        self._detaching.end()
        if self.state == "recording":
            self.stop()
        elif self.state == "prepared" and self._profile is not None:
            # A prepared session has no end of its own: it is started and stopped, and thrown away.
            self.state = "stopping"
            with quiet(self._torch):
                self._profile.start_trace()
                self._profile.stop_trace()
        self.state = "aborted"

    @property
    def profiler_stays(self) -> bool:
        """In the process, after the window, making launches dearer."""
        return self._gpu and self._detaching.stays

    def forget(self) -> None:
        """Steps have run since the end: CUPTI has left."""
        self._detaching.end()

    def export(self, path: Path) -> None:
        """A plain file, put in place whole."""
        assert self._profile is not None
        began = perf_counter_ns()
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"partial-{os.getpid()}.json")
        try:
            with _spelled(temporary) as name:
                self._profile.export_chrome_trace(name)
            self.kernels, self.gradients, self.ops = _count(temporary, KERNEL, GRADIENT, OP)
            temporary.chmod(0o600)
            temporary.replace(path)
        finally:  # torch writes a file of another name first: a full disk leaves either
            for left in path.parent.glob(f"{temporary.name}*"):
                left.unlink(missing_ok=True)
        self._profile = None
        self.export_ns = perf_counter_ns() - began


def _count(path: Path, *words: bytes) -> list[int]:
    """How often words stand in a file: asking the profiler would make an object of each event."""
    found, before = [0] * len(words), b""
    longest = max(map(len, words))
    with path.open("rb") as file:
        while part := file.read(PART_BYTES):
            held = before + part
            before = held[1 - longest :]
            # What fits into the end that is kept is found with the next part.
            found = [
                many + held.count(word) - before.count(word) for many, word in zip(found, words, strict=True)
            ]
    return [many + before.count(word) for many, word in zip(found, words, strict=True)]


@contextlib.contextmanager
def _spelled(path: Path) -> Iterator[str]:
    """The path as torch takes it: text. A folder whose name is none is reached by its open descriptor."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)
    else:
        yield str(path)
