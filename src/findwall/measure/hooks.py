"""What findwall attaches to torch: thin wraps around optimizers, loader, scaler and graph replay.

Every wrap calls the original unchanged; what it notes goes to a `Sink`. A part of torch that is not there (an
older version) is left out, and said so.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import MethodType, ModuleType
from typing import Any, Protocol

from findwall.measure import optimizerhooks
from findwall.measure.captures import watch_captures
from findwall.measure.collector import watch_collector
from findwall.measure.diary import SAVING
from findwall.measure.forward import never_or_when_compiling
from findwall.measure.importhook import when_imported
from findwall.measure.optimizerhooks import OptimizerSink, watched_step
from findwall.measure.stepfinder import StepEnd

LOADER_STARTS = "enumerate(DataLoader)#findwall.__iter__"  # named like torch's own range of the next batch


class Sink(OptimizerSink, Protocol):
    """Who is told. None of these may raise into the job."""

    off: bool  # findwall is out: call the originals and nothing else

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
    """torch is wrapped once in a process; sessions come and go behind this."""

    __slots__ = ("sink",)

    def __init__(self, sink: Sink) -> None:
        self.sink = sink


_relay: Relay | None = None


def install(torch: Any, sink: Sink) -> list[str]:
    """Attach to torch. Returns what could not be attached."""
    global _relay
    if _relay is not None:
        _relay.sink = sink
        return []
    _relay = relay = Relay(sink)
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
    when_imported("safetensors.torch", lambda module: _wrap_saving(module, "save_file", relay))
    when_imported("torch._dynamo", _hide_from_compiler)
    return missing


def _hide_from_compiler(dynamo: ModuleType) -> None:
    """Code that runs beside a compiled region is offered to the compiler too: ours is not for it."""
    try:
        rules = dynamo.trace_rules
        with _compiled_once(rules):
            for name in _ours():
                rules.add(name)
    except Exception:  # noqa: BLE001 - this runs inside the job's import: better a slower compile than a failed one
        return


@contextlib.contextmanager
def _compiled_once(rules: Any) -> Iterator[None]:
    """Every name that is added compiles one long pattern of all anew: a second for a hundred of ours."""
    compile_pattern = getattr(rules, "_recompile_re", None)
    if compile_pattern is None:  # another torch
        yield
        return
    rules._recompile_re = lambda: None
    try:
        yield
    finally:
        rules._recompile_re = compile_pattern
        compile_pattern()


def _ours() -> set[str]:
    """The modules that run beside a job; the other stages as a whole, as each name more makes all the others
    slower to add."""
    found = set()
    for name, module in list(sys.modules.items()):
        stage = ".".join(name.split(".")[:2])
        if stage == "findwall.measure":
            if module is not optimizerhooks and not hasattr(module, "__path__"):
                found.add(name)
        elif name.startswith("findwall."):
            found.add(stage)
    return found


def _wrap_optimizers(torch: Any, relay: Relay) -> None:
    """torch puts its own hooks around step() once a class, when the first of its optimizers is made."""
    optimizer_class = torch.optim.Optimizer
    watched = functools.partial(watched_step, never_or_when_compiling(torch), relay)
    hook_step = optimizer_class.profile_hook_step
    hooked = [
        known for known in _subclasses(optimizer_class) if hasattr(known.__dict__.get("step"), "hooked")
    ]
    if hooked:  # the job made optimizers before
        _wrap_scheduled(optimizer_class, watched)
    for known in hooked:
        known.step = watched(known.step)
    optimizer_class.profile_hook_step = staticmethod(
        functools.wraps(hook_step)(lambda step: watched(hook_step(step)))
    )
    original = optimizer_class.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        relay.sink.optimizer_made()

    optimizer_class.__init__ = made


def _subclasses(parent: Any) -> Iterator[Any]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _wrap_scheduled(optimizer_class: Any, watched: Callable[..., Any]) -> None:
    """A learning-rate schedule gives its optimizer a step() of its own, which calls the class's as it was."""
    for known in gc.get_objects():
        own = known.__dict__.get("step") if issubclass(type(known), optimizer_class) else None
        if own is not None:
            known.step = MethodType(watched(_with_self(own)), known)


def _with_self(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    return step


def _wrap_scaler(torch: Any, relay: Relay) -> None:
    """A GradScaler that skips a step calls no optimizer: the step was one all the same."""
    scaler_class = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    original = scaler_class.step

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
            relay.sink.optimizer_began(optimizer, False)
            relay.sink.optimizer_ended(optimizer, False)
        return result

    scaler_class.step = step


def _wrap_loader(torch: Any, relay: Relay) -> None:
    module = importlib.import_module("torch.utils.data.dataloader")
    iterator_class = module._BaseDataLoaderIter
    iterator_class.__next__ = _timed_next(iterator_class.__next__, relay)
    loader_class = torch.utils.data.DataLoader
    loader_class.__iter__ = _timed_start(torch, loader_class.__iter__, relay)
    workers = getattr(module, "_MultiProcessingDataLoaderIter", None)
    if workers is not None:
        # Workers that are not kept are stopped at an epoch's end and waited for.
        workers._shutdown_workers = _timed_start(torch, workers._shutdown_workers, relay)


def _timed_start(torch: Any, original: Callable[[Any], Any], relay: Relay) -> Callable[[Any], Any]:
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


def _timed_next(original: Callable[[Any], Any], relay: Relay) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def take(self: Any) -> Any:
        is_first = getattr(self, "_num_yielded", None) == 0
        began = perf_counter_ns()
        batch = original(self)
        spent = perf_counter_ns() - began
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
    original = getattr(module, name)

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            relay.sink.did_beside(SAVING, perf_counter_ns() - began)

    setattr(module, name, save)


def _wrap_evaluation(torch: Any, relay: Relay) -> None:
    module_class = torch.nn.Module
    original = module_class.eval

    @functools.wraps(original)
    def evaluate(self: Any) -> Any:
        result = original(self)
        relay.sink.evaluation_began()
        return result

    module_class.eval = evaluate


def _wrap_replay(torch: Any, relay: Relay) -> None:
    """A whole step inside one CUDA graph calls no optimizer: its replay is the step."""
    graph_class = torch.cuda.CUDAGraph
    original = graph_class.replay
    graph_class.capture_begin = _then(
        graph_class.capture_begin, lambda: relay.sink.gate.open()
    )  # what is captured must not pass unseen

    @functools.wraps(original)
    def replay(self: Any) -> Any:
        result = original(self)
        gate = relay.sink.gate
        if not gate.left or gate.passed(StepEnd.REPLAY, id(self)):
            relay.sink.graph_replayed(self)
        return result

    graph_class.replay = replay


def _watch_profilers(torch: Any, relay: Relay) -> None:
    """Only one profiler session fits in a process, and the job's own comes first."""
    profile_class = torch.autograd.profiler.profile
    original = profile_class._prepare_trace

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not relay.sink.off:
            relay.sink.profiler_wanted()
        return original(self, *args, **kwargs)

    profile_class._prepare_trace = prepare
    outer = torch.profiler.profile
    outer.start = _then(outer.start, lambda: relay.sink.profiler_opened(True))
    outer.stop = _then(outer.stop, lambda: relay.sink.profiler_opened(False))


def _then(original: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        tell()
        return result

    return call
