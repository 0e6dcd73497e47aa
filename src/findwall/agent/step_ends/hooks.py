"""What findwall attaches to torch: thin wraps around optimizers, loader, scaler and graph replay.

Every wrap calls the original unchanged; what it notes goes to a `Sink`. A part of torch that is not there (an
older version) is left out, and said so.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol

from findwall.agent.allocations.live_tensors import objects_of
from findwall.agent.importhook import when_imported
from findwall.agent.step_ends.forward import never_or_when_compiling
from findwall.agent.step_ends.optimizerhooks import OptimizerSink, pass_step_on, watched_step
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.step_ends.uncompiled import hide_from_compiler
from findwall.agent.timing.collector import watch_collector
from findwall.agent.timing.diary import SAVING
from findwall.agent.timing.loading import Loading
from findwall.agent.tracing.graph_captures import watch_captures
from findwall.apply.registry import COUNTS, EXPLAINS, REGISTRY, Call
from findwall.machine.torch_device import subclasses

BY = "steps"
PROFILES = "a job that is measured again must be known to profile itself"
LOADER_STARTS = "enumerate(DataLoader)#findwall.__iter__"  # named like torch's own range of the next batch


class Sink(OptimizerSink, Protocol):
    """Who is told. None of these may raise into the job."""

    loading: Loading

    @property
    def off(self) -> bool:
        """findwall is out: call the originals and nothing else."""

    def optimizer_made(self) -> None: ...
    def optimizer_steps(self) -> int: ...
    def batch_taken(self, iterator: Any, batch: Any, spent_ns: int) -> None: ...
    def loader_started(self, spent_ns: int) -> None: ...
    def loader_began(self, spent_ns: int) -> None: ...
    def did_beside(self, what: str, spent_ns: int) -> None: ...
    def recording(self) -> bool: ...
    def evaluation_began(self) -> None: ...
    def graph_replayed(self, graph: Any) -> None: ...
    def collected(self, spent_ns: int) -> None: ...
    def profiler_wanted(self) -> None: ...
    def profiler_opened(self, is_open: bool) -> None: ...


class Relay:
    """What is put in torch tells this; sessions come and go behind it."""

    __slots__ = ("sink",)

    def __init__(self, sink: Sink) -> None:
        self.sink = sink


_relay: Relay | None = None


def install(torch: Any, sink: Sink) -> list[str]:
    """Attach to torch, or attach again what was undone. Returns what could not be attached."""
    global _relay
    _relay = relay = _relay or Relay(sink)
    relay.sink = sink
    hide_from_compiler()  # first in, so that it is undone last
    missing = []
    for part in (
        _wrap_optimizers,
        _wrap_scaler,
        _wrap_loader,
        _wrap_save,
        _wrap_evaluation,
        _wrap_replay,
        watch_captures,
        _watch_profilers,
    ):
        try:
            part(torch, relay)
        except (AttributeError, ImportError) as error:
            missing.append(f"{part.__name__.lstrip('_')}: {error}")
    watch_collector(lambda: relay.sink.off, lambda ns: relay.sink.collected(ns))
    when_imported("safetensors.torch", lambda module: _wrap_saving(module, "save_file", relay), BY, EXPLAINS)
    return missing


def _wrap_optimizers(torch: Any, relay: Relay) -> None:
    """torch puts its own hooks around step() once a class, when the first of its optimizers is made."""
    optimizer_class = torch.optim.Optimizer
    passing = functools.partial(pass_step_on, never_or_when_compiling(torch))
    watched = functools.partial(watched_step, relay)

    def watch(known: Any) -> None:
        if hasattr(vars(known).get("step"), "hooked") and not REGISTRY.holds(BY, known, "step"):
            REGISTRY.wrap(BY, known, "step", watched, past_trace=COUNTS, passing=passing)

    hooked = [known for known in subclasses(optimizer_class) if hasattr(vars(known).get("step"), "hooked")]
    if any(not REGISTRY.holds(BY, known, "step") for known in hooked):  # the job made optimizers before
        _wrap_scheduled(optimizer_class, watched)
    for known in hooked:
        watch(known)

    def hooks(original: Call) -> Call:
        @functools.wraps(original)
        def hook(self: Any) -> None:
            original(self)
            with contextlib.suppress(Exception):  # fail open: a class that refuses is not watched
                watch(type(self))

        return hook

    def makes(original: Call) -> Call:
        @functools.wraps(original)
        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            relay.sink.optimizer_made()

        return made

    REGISTRY.wrap(BY, optimizer_class, "_patch_step_function", hooks, past_trace=COUNTS)
    REGISTRY.wrap(BY, optimizer_class, "__init__", makes)


def _wrap_scheduled(optimizer_class: Any, watched: Callable[[Call], Call]) -> None:
    """A learning-rate schedule gives its optimizer a step() of its own, which calls the class's as it was."""
    for known in objects_of(optimizer_class):
        if "step" in known.__dict__:
            make = functools.partial(_watched_own, weakref.ref(known), watched)
            REGISTRY.wrap(BY, known, "step", make, past_trace=COUNTS)


def _watched_own(known: weakref.ref[Any], watched: Callable[[Call], Call], own: Call) -> Call:
    """Who is told of a step is told whose it is: this one's, which nothing here keeps alive."""
    step = watched(lambda _self, *args, **kwargs: own(*args, **kwargs))
    return lambda *args, **kwargs: step(known(), *args, **kwargs)


def _wrap_scaler(torch: Any, relay: Relay) -> None:
    """A GradScaler that skips a step calls no optimizer: the step was one all the same."""
    scaler_class = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler

    def watched(original: Call) -> Call:
        @functools.wraps(original)
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            gate = relay.sink.gate
            left = gate.left
            if left:
                result = original(self, optimizer, *args, **kwargs)
                if gate.left == left and gate.passed(StepEnd.OPTIMIZER, id(optimizer)):
                    relay.sink.optimizer_ended(optimizer, False)
                return result
            before = relay.sink.optimizer_steps()
            result = original(self, optimizer, *args, **kwargs)
            if relay.sink.optimizer_steps() == before:
                relay.sink.optimizer_began(optimizer)
                relay.sink.optimizer_ended(optimizer, False)
            return result

        return step

    REGISTRY.wrap(BY, scaler_class, "step", watched, past_trace=COUNTS)


def _wrap_loader(torch: Any, relay: Relay) -> None:
    module = importlib.import_module("torch.utils.data.dataloader")
    start = functools.partial(_timed_start, torch, relay)
    timed_next = functools.partial(_timed_next, relay)
    REGISTRY.wrap(BY, module._BaseDataLoaderIter, "__next__", timed_next, past_trace=COUNTS)
    REGISTRY.wrap(BY, torch.utils.data.DataLoader, "__iter__", start, past_trace=EXPLAINS)
    workers = getattr(module, "_MultiProcessingDataLoaderIter", None)
    if workers is not None:
        # Workers that are not kept are stopped at an epoch's end and waited for.
        REGISTRY.wrap(BY, workers, "_shutdown_workers", start, past_trace=EXPLAINS)


def _timed_start(torch: Any, relay: Relay, original: Call) -> Call:
    @functools.wraps(original)
    def call(self: Any) -> Any:
        if relay.sink.off:
            return original(self)
        began = perf_counter_ns()
        with _range(torch, relay, LOADER_STARTS):
            result = original(self)
        spent = perf_counter_ns() - began
        relay.sink.loader_began(spent)
        if relay.sink.gate.left:
            relay.sink.gate.waited_for_data(spent, batches=0)
        else:
            relay.sink.loader_started(spent)
        return result

    return call


def _timed_next(relay: Relay, original: Call) -> Call:
    @functools.wraps(original)
    def take(self: Any) -> Any:
        is_first = getattr(self, "_num_yielded", None) == 0
        loading = relay.sink.loading
        looked = loading.look() if loading.on else None
        began = perf_counter_ns()
        batch = original(self)
        spent = perf_counter_ns() - began
        if looked is not None:
            loading.add(looked, spent)
        if is_first:
            relay.sink.loader_began(spent)
        gate = relay.sink.gate
        if gate.left and not gate.passed(StepEnd.LOADER, 0):
            gate.waited_for_data(spent)
        else:
            relay.sink.batch_taken(self, batch, spent)
        return batch

    return take


def _range(torch: Any, relay: Relay, name: str) -> Any:
    """A range in our own trace; nothing while none is recorded."""
    if relay.sink.off or not relay.sink.recording():
        return contextlib.nullcontext()
    return torch.autograd.profiler.record_function(name)


def _wrap_save(torch: Any, relay: Relay) -> None:
    _wrap_saving(torch, "save", relay)


def _wrap_saving(module: Any, name: str, relay: Relay) -> None:
    """Checkpoints are written seldom and take long."""

    def timed(original: Call) -> Call:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                relay.sink.did_beside(SAVING, perf_counter_ns() - began)

        return save

    REGISTRY.wrap(BY, module, name, timed, past_trace=EXPLAINS)


def _wrap_evaluation(torch: Any, relay: Relay) -> None:
    told = functools.partial(_then, lambda: relay.sink.evaluation_began())
    REGISTRY.wrap(BY, torch.nn.Module, "eval", told, past_trace=EXPLAINS)


def _wrap_replay(torch: Any, relay: Relay) -> None:
    """A whole step inside one CUDA graph calls no optimizer: its replay is the step."""
    graph_class = torch.cuda.CUDAGraph
    opened = functools.partial(_then, lambda: relay.sink.gate.open())  # captures must not pass unseen

    def watched(original: Call) -> Call:
        @functools.wraps(original)
        def replay(self: Any) -> Any:
            result = original(self)
            gate = relay.sink.gate
            if not gate.left or gate.passed(StepEnd.REPLAY, id(self)):
                relay.sink.graph_replayed(self)
            return result

        return replay

    REGISTRY.wrap(BY, graph_class, "capture_begin", opened, past_trace=COUNTS)
    REGISTRY.wrap(BY, graph_class, "replay", watched, past_trace=COUNTS)


def _watch_profilers(torch: Any, relay: Relay) -> None:
    """Only one profiler session fits in a process, and the job's own comes first."""

    def wanted(original: Call) -> Call:
        @functools.wraps(original)
        def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not relay.sink.off:
                relay.sink.profiler_wanted()
            return original(self, *args, **kwargs)

        return prepare

    profile, outer = torch.autograd.profiler.profile, torch.profiler.profile
    opened = functools.partial(_then, lambda: relay.sink.profiler_opened(True))
    closed = functools.partial(_then, lambda: relay.sink.profiler_opened(False))
    REGISTRY.wrap(BY, profile, "_prepare_trace", wanted, past_trace=PROFILES)
    REGISTRY.wrap(BY, outer, "start", opened, past_trace=PROFILES)
    REGISTRY.wrap(BY, outer, "stop", closed, past_trace=PROFILES)


def _then(tell: Callable[[], None], original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        tell()
        return result

    return call
