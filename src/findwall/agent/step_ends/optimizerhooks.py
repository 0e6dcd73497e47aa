"""The wrap around optimizers' step(), which a compiler may trace: a compiled function may call step() too.

It stands alone in this file because every other module of the measurement is hidden from the compiler, while
this must be traceable: to a tracer it goes straight to torch's own step(), and nothing of findwall enters the
graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from findwall.agent.step_ends.step_gate import Gate


class Spot(Protocol):
    """Where the registry keeps what is to be called."""

    @property
    def original(self) -> Callable[..., Any]: ...
    @property
    def call(self) -> Callable[..., Any]: ...


def pass_step_on(compiling: Callable[[], bool], spot: Spot) -> Callable[..., Any]:
    """What lies in the class's attribute. To a tracer the first line is a constant."""
    original = spot.original

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        return spot.call(*args, **kwargs)

    return step


class OptimizerSink(Protocol):
    """Who is told of optimizers. None of these may raise into the job."""

    gate: Gate

    def optimizer_began(self, optimizer: Any) -> None: ...
    def optimizer_ended(self, optimizer: Any, failed: bool) -> None: ...


class Holder(Protocol):
    """Holds the one who is told now."""

    @property
    def sink(self) -> OptimizerSink: ...


def watched_step(relay: Holder, original: Callable[..., Any]) -> Callable[..., Any]:
    """This step() of an optimizer's class, with somebody told of it."""

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        sink = relay.sink
        gate = sink.gate
        if gate.left or gate.inside:
            return gate.let_optimizer_pass(original, args, kwargs, sink.optimizer_ended)
        sink.optimizer_began(args[0])
        try:
            result = original(*args, **kwargs)
        except BaseException:  # whatever the job ends its step with: it goes on to the job
            sink.optimizer_ended(args[0], True)
            raise
        sink.optimizer_ended(args[0], False)
        return result

    return step
