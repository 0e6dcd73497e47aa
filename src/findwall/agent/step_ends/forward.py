"""Find the outermost module of a job that only infers, without touching what a compiler sees.

Global module hooks would slow every module call and put guards or breaks into compiled graphs. So a
thread looks, many times a second, at which module's call stands outermost on the job's stack, and then one
wrap is put around that one instance's call: outside of any compiled region, dropped by pickle and deepcopy
like torch's own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from findwall.agent.step_ends.step_gate import Gate
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.timing.thread_stacks import look
from findwall.apply.registry import COUNTS, REGISTRY

# How often the frames are looked at: often for the first ten seconds, then less. Chosen by hand.
LOOK_PERIOD_S = 0.01
SLOW_LOOK_PERIOD_S = 0.05
FAST_LOOKS = 1000
LOOKS_THAT_AGREE = 3  # on the same module before it is taken for the model


class ForwardSeeker:
    """Looks until it has found the module, or is told to stop."""

    def __init__(self, torch: Any, thread_id: int, found: Callable[[Any], None]) -> None:
        self._call = torch.nn.Module._wrapped_call_impl.__code__  # here: a thread's failure is on stderr
        self._thread_id = thread_id
        self._found = found
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_found, name="findwall-seek", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """At the job's end: no thread of ours is left when the interpreter goes down."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(0.5)

    def _look_until_found(self) -> None:
        hits: Counter[int] = Counter()
        looks = 0
        while not self._stop.wait(LOOK_PERIOD_S if looks < FAST_LOOKS else SLOW_LOOK_PERIOD_S):
            looks += 1
            module = look(self._thread_id, self._module)
            if module is None:
                continue
            hits[id(module)] += 1
            if hits[id(module)] >= LOOKS_THAT_AGREE:
                self._found(module)
                return

    def _module(self, frame: FrameType) -> Any | None:
        found = outermost_call(frame, self._call)
        return None if found is None else found.f_locals.get("self")


def outermost_call(frame: FrameType | None, call: CodeType) -> FrameType | None:
    found = None
    while frame is not None:
        if frame.f_code is call:
            found = frame
        frame = frame.f_back
    return found


def wrap_call(torch: Any, module: Any, gate: Gate, ended: Callable[[int, bool], None]) -> Callable[[], None]:
    """Tell `ended(id, gradients on)` after each call of this module. Returns what takes the wrap off."""
    former = module.__dict__.get("_compiled_call_impl")
    call = former if former is not None else module._call_impl
    compiling = never_or_when_compiling(torch)
    grad_enabled = torch.is_grad_enabled
    key = id(module)

    def called(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if compiling():
            return result
        if not gate.left or gate.passed(StepEnd.FORWARD, key):
            ended(key, grad_enabled())
        return result

    called.__wrapped__ = call  # type: ignore[attr-defined]  # what was there is still called
    object.__setattr__(module, "_compiled_call_impl", called)

    def unwrap() -> bool:
        if module.__dict__.get("_compiled_call_impl") is not called:
            return False
        if former is None:
            module.__dict__.pop("_compiled_call_impl")
        else:
            object.__setattr__(module, "_compiled_call_impl", former)
        return True

    what = f"{type(module).__qualname__}()._compiled_call_impl"
    return REGISTRY.hold("steps", what, unwrap, past_trace=COUNTS).undo


def never_or_when_compiling(torch: Any) -> Callable[[], bool]:
    """To a tracer the constant True, else False: at the cost of one call, where torch has it so."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        found: Callable[[], bool] | None = getattr(compiler, name, None)
        if found is not None:
            return found
    return lambda: False
