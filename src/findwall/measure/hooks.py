"""What findwall attaches to torch: optimizer hooks, and thin wraps around loader, scaler and graph replay.

Every wrap calls the original unchanged; what it notes goes to a `Sink`. A part of torch that is not there (an
older version) is left out, and said so.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import ModuleType
from typing import Any, Protocol

from findwall.measure import optimizerhooks
from findwall.measure.importhook import when_imported
from findwall.measure.optimizerhooks import make_hooks, tell_after


class Sink(Protocol):
    """Who is told. None of these may raise into the job."""

    off: bool  # findwall is out: call the originals and nothing else

    @property
    def quiet(self) -> bool:
        """A shadow step: steps are counted, nothing is measured."""

    def optimizer_made(self) -> None: ...
    def optimizer_began(self, optimizer: Any, alone: bool) -> None: ...
    def optimizer_ended(self, optimizer: Any) -> None: ...
    def optimizer_steps(self) -> int: ...
    def optimizer_left(self, optimizer: Any, failed: bool) -> None: ...
    def batch_taken(self, iterator: Any, batch: Any, spent_ns: int) -> None: ...
    def loader_started(self, spent_ns: int) -> None: ...
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
        _hook_optimizers,
        _wrap_scaler,
        _wrap_loader,
        _wrap_evaluation,
        _wrap_replay,
        _watch_profilers,
    ):
        try:
            part(torch, relay)
        except (AttributeError, ImportError) as error:
            missing.append(f"{part.__name__.lstrip('_')}: {error}")
    _watch_collector(relay)
    when_imported("torch._dynamo", _hide_from_compiler)
    return missing


def _hide_from_compiler(dynamo: ModuleType) -> None:
    """Code that runs beside a compiled region is offered to the compiler too: ours is not for it."""
    try:
        for name, module in list(sys.modules.items()):
            if (
                name.startswith("findwall.")
                and module is not optimizerhooks
                and not hasattr(module, "__path__")
            ):
                dynamo.trace_rules.add(name)
    except Exception:  # noqa: BLE001 - this runs inside the job's import: better a slower compile than a failed one
        return


def _hook_optimizers(torch: Any, relay: Relay) -> None:
    compiling = getattr(torch.compiler, "is_compiling", lambda: False)
    before, after = make_hooks(
        compiling,
        lambda optimizer, alone: relay.sink.optimizer_began(optimizer, alone),
        lambda optimizer: relay.sink.optimizer_ended(optimizer),
    )
    module = importlib.import_module("torch.optim.optimizer")
    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)
    optimizer_class = torch.optim.Optimizer
    hook_step = tell_after(
        optimizer_class.profile_hook_step,
        compiling,
        lambda optimizer, failed: relay.sink.optimizer_left(optimizer, failed),
    )
    optimizer_class.profile_hook_step = staticmethod(hook_step)
    original = optimizer_class.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        relay.sink.optimizer_made()

    optimizer_class.__init__ = made


def _wrap_scaler(torch: Any, relay: Relay) -> None:
    """A GradScaler that skips a step calls no optimizer: the step was one all the same."""
    scaler_class = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    original = scaler_class.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if relay.sink.off:
            return original(self, optimizer, *args, **kwargs)
        before = relay.sink.optimizer_steps()
        result = original(self, optimizer, *args, **kwargs)
        if relay.sink.optimizer_steps() == before:
            relay.sink.optimizer_began(optimizer, False)
            relay.sink.optimizer_ended(optimizer)
            relay.sink.optimizer_left(optimizer, False)
        return result

    scaler_class.step = step


def _wrap_loader(torch: Any, relay: Relay) -> None:
    iterator_class = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    iterator_class.__next__ = _timed_next(iterator_class.__next__, relay)
    loader_class = torch.utils.data.DataLoader
    start = loader_class.__iter__

    @functools.wraps(start)
    def iterate(self: Any) -> Any:
        if relay.sink.off or relay.sink.quiet:
            return start(self)
        began = perf_counter_ns()
        iterator = start(self)
        relay.sink.loader_started(perf_counter_ns() - began)
        return iterator

    loader_class.__iter__ = iterate


def _timed_next(original: Callable[[Any], Any], relay: Relay) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def take(self: Any) -> Any:
        if relay.sink.off:
            return original(self)
        began = perf_counter_ns()
        batch = original(self)
        relay.sink.batch_taken(self, batch, perf_counter_ns() - began)
        return batch

    return take


def _wrap_evaluation(torch: Any, relay: Relay) -> None:
    module_class = torch.nn.Module
    original = module_class.eval

    @functools.wraps(original)
    def evaluate(self: Any) -> Any:
        result = original(self)
        if not relay.sink.off:
            relay.sink.evaluation_began()
        return result

    module_class.eval = evaluate


def _wrap_replay(torch: Any, relay: Relay) -> None:
    """A whole step inside one CUDA graph calls no optimizer: its replay is the step."""
    graph_class = torch.cuda.CUDAGraph
    original = graph_class.replay

    @functools.wraps(original)
    def replay(self: Any) -> Any:
        result = original(self)
        if not relay.sink.off:
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


def _watch_collector(relay: Relay) -> None:
    """Garbage collection is in no trace."""
    began = 0

    def note(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if relay.sink.off or relay.sink.quiet:
            return
        if phase == "start":
            began = perf_counter_ns()
        elif began:
            relay.sink.collected(perf_counter_ns() - began)
            began = 0

    gc.callbacks.append(note)
