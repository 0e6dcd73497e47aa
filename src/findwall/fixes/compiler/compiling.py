"""Compile the models that a job calls, as they are called first."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.layer_calls import Instead, LayerCalls
from findwall.apply.model_calls import Call, InPlace, is_layer, place
from findwall.apply.roots import roots
from findwall.fixes import unless
from findwall.model.applied import Place, Spot
from findwall.step.links import keeps_gradients_graph

# Places: calls of models, and the functions that call layers where no model does.
CALLED, FUNCTION = "call", "function"
TORCHS = "torch's"  # a model of a class that torch brings
NO_GRAPH = "the compiler made no graph of the models that the job calls"
NO_FUNCTION = (
    "the job calls single layers, which leaves nothing to fuse, and no function of its own holds these calls "
    "alone: put the forward pass into one, with @torch.compile on it"
)
NO_CALL = "no model is called but in what the job compiles itself"
OWN = "the job compiles its model itself"
SINGLE_OPS = "the models that the job calls are single ops, which leaves nothing to fuse"
WRAPPED = (
    "the compiler makes no graph of torch's own modules inside DistributedDataParallel: compile the model "
    "before it is wrapped"
)

# What the compiler makes of a backward pass cannot be differentiated: the job would end with an error.
TWICE = unless("compile/second-derivatives", lambda facts: keeps_gradients_graph(facts.timeline, facts.links))


def compile_models(torch: Any, effect: Effect, **how: Any) -> None:
    """Each outermost module, in place; or the functions that call single layers. What the compiler made of
    it is the proof."""
    if not hasattr(torch.nn.Module, "compile"):
        effect.cannot(f"torch {torch.__version__} cannot compile a module in place")
        return
    effect.missed(NO_CALL)
    layers = _Layers(torch, effect, how)
    made = Made(torch)
    roots(torch).tell(lambda module, _args: _compile_whole(torch, effect, how, made, module, layers))
    roots(torch).each(layers.called)
    effect.at_end(lambda: made.told(effect, layers.told()))


def compile_live(torch: Any, effect: Effect) -> None:
    """The same in a job that runs: the whole models that it was seen to call, which can be put back. The
    compiler goes past what stands around the calls of modules, so nothing may."""
    effect.missed(NO_CALL)
    made = Made(torch)
    for module in roots(torch).models:
        _compile_whole(torch, effect, {}, made, module, None)
    effect.at_end(lambda: made.told(effect, ""))


def _compile_whole(
    torch: Any, effect: Effect, how: dict[str, Any], made: Made, module: Any, layers: _Layers | None
) -> None:
    if is_layer(module):
        (layers or effect).missed(NO_FUNCTION)
    elif module._compiled_call_impl is not None or hasattr(module, "_orig_mod"):
        effect.missed(OWN)
    else:
        if layers is not None:
            layers.stop()
        if module not in effect.kept:
            effect.kept[module] = _compiled_call(torch, module, how)
        call = made.counted(effect.kept[module])
        place(module, _Compiled(torch, module._call_impl, call), None)
        effect.at(CALLED, value=TORCHS if type(module).__module__.startswith("torch.") else "")
        effect.missed(WRAPPED if _is_wrapped(torch, module) else NO_GRAPH)


def _compiled_call(torch: Any, module: Any, how: dict[str, Any]) -> Call:
    """As `module.compile()`, which leaves out models that are made of torch's own modules alone: the compiler
    begins at the first frame that is none of torch's."""
    inline = importlib.import_module("torch._dynamo.external_utils").wrap_inline
    compiled: Call = torch.compile(inline(module._call_impl), **how)
    return compiled


def graphs_seen(torch: Any, effect: Effect) -> None:
    """What the compiler made of anything in the job, whoever asked it to."""

    def told() -> str:
        if "torch._dynamo.utils" not in sys.modules:
            effect.missed("the compiler was not called")
            return ""
        effect.missed("the compiler made no graph")
        return Made(torch).told(effect, " by the job's own switch")

    effect.at_end(told)


class _Compiled(InPlace):
    """A model's calls. One that the job traces with `torch.jit` is not for the compiler, and made of it."""

    def __init__(self, torch: Any, plain: Call, compiled: Call) -> None:
        self._plain, self._compiled = plain, compiled
        self._is_traced: Callable[[], Any] = torch._C._get_tracing_state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._plain if self._is_traced() else self._compiled)(*args, **kwargs)


class Made:
    """What the compiler made in calls that we had compiled: the job may compile other things itself."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._graphs = self._ops = 0

    def counted(self, call: Call) -> Call:
        def counting(*args: Any, **kwargs: Any) -> Any:
            graphs, ops = self._now()
            try:
                return call(*args, **kwargs)
            finally:
                now = self._now()
                self._graphs += now[0] - graphs
                self._ops += now[1] - ops

        return counting

    def _now(self) -> tuple[int, int]:
        stats = self._torch._dynamo.utils.counters["stats"]
        return stats.get("unique_graphs", 0), stats.get("calls_captured", 0)

    def told(self, effect: Effect, where: str) -> str:
        """`where`: the functions or blocks that it is known to be of. None: what was counted."""
        graphs, ops = self._now() if where else (self._graphs, self._ops)
        if graphs and ops > graphs:
            return f"{graphs} compiled graph{'s' if graphs > 1 else ''} of {ops} ops{where}"
        if graphs:
            effect.missed(SINGLE_OPS)
        return ""


class _Layers:
    """Single layers that the job calls itself: the functions around them are compiled."""

    def __init__(self, torch: Any, effect: Effect, how: dict[str, Any]) -> None:
        self._torch, self._effect, self._how = torch, effect, how
        self._calls = LayerCalls()
        self._lock = threading.RLock()
        self._over = False

    def called(self, module: Any) -> bool:
        if not self._over and is_layer(module):
            with self._lock:  # threads that call layers would have a function compiled twice
                code = self._calls.saw(module)
                if code is not None:
                    self._compile(code)
        return not self._over

    def missed(self, why: str) -> None:
        if not (self._over or self._calls.instead):
            self._effect.missed(why)

    def stop(self) -> None:
        self._over = True
        self._calls.stop()

    def _compile(self, code: CodeType) -> None:
        self._effect.missed(NO_GRAPH)
        self._calls.instead[code] = Instead(code, self._made)

    def _made(self, function: Any) -> Call:
        """With what other fixes have around the layers, which the compiler goes past."""
        made: Call = self._torch.compile(function, **self._how)
        for around in roots(self._torch).around_functions.values():
            made = around(made)
        return made

    def told(self) -> str:
        """The functions of which there is something compiled; the others are no longer called."""
        found = _compiled(self._torch, list(self._calls.instead))
        for code in found or self._calls.instead:
            if self._calls.instead[code].anew:
                self._effect.cannot(f"{_where(code)} is defined in every step: define it once")
        for code in found:
            file = os.path.abspath(code.co_filename)  # noqa: PTH100 - symlinks stay
            self._effect.keep(Place(FUNCTION, (Spot(file, code.co_firstlineno, function=code.co_name),)))
        also = "; other calls of layers are as they were" if self._calls.outside else ""
        return f", of {' and '.join(map(_where, found))}{also}" if found else ""


def _where(code: CodeType) -> str:
    return f"{code.co_name} at {Path(code.co_filename).name}:{code.co_firstlineno}"


def _compiled(torch: Any, codes: list[CodeType]) -> list[CodeType]:
    """By torch's own books: what it keeps of them, or where nothing is left of that, what it came by.
    Of a torch without such books it is what was asked for."""
    with contextlib.suppress(AttributeError, ImportError, TypeError):
        kept = torch._dynamo.eval_frame._debug_get_cache_entry_list
        came_by = importlib.import_module("torch._dynamo.convert_frame").input_codes
        return [one for one in codes if kept(one)] or [one for one in codes if one in came_by]
    return codes


def _is_wrapped(torch: Any, module: Any) -> bool:
    """A model of torch's own modules inside DistributedDataParallel, whose frames the compiler passes by."""
    wrapper = getattr(torch.nn.parallel, "DistributedDataParallel", ())
    return isinstance(module, wrapper) and type(module.module).__module__.startswith("torch.")
