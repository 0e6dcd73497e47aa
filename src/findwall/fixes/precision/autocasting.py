"""Autocast around a job's models and their losses.

It begins with the call of a model and lasts, where a loss may follow, until the backward pass begins: the
loss in between is the job's own code. Without gradients, or in evaluation mode, it lasts for the call.

A loss that may follow need not. It ends as well when nothing is left of what the model gave, and with what
else shows that the step is over. What nobody can know: a job in training mode that keeps what its model gave
and never goes backward has it on until the model's next call.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from findwall.apply.applying import Effect, is_compiling_of
from findwall.apply.job_lines import place_now
from findwall.apply.model_calls import Call, Model, each_model, is_layer
from findwall.apply.registry import APPLIED, REGISTRY, STEP_PRE_HOOK
from findwall.apply.roots import roots
from findwall.fixes.precision.autocast_seen import OWN, kept_seen, products_seen
from findwall.fixes.precision.lent_autocast import KINDS, LentAutocast
from findwall.model.catalogue import MAJORITY_SHARE

BY = "autocast"
# Places: calls of models, stretches from there to the backward pass, and a loss that autocast refuses.
CALLED, SPAN, REFUSED = "call", "span", "refused"
TRAINS, WIDENED = "trains", "widened"  # of a call: gradients are wanted; what it gave was made fp32 again
NOT_COMPILED_SO = "nothing that the compiled function gives or keeps is in {}"


def autocast_models(torch: Any, effect: Effect, dtype: Any) -> None:
    """Every model that is in fp32. The number format that its products read is the proof."""
    try:
        torch.is_autocast_enabled("cpu")
    except TypeError:  # before 2.4 it could be asked about GPUs alone
        effect.cannot(f"torch {torch.__version__} is too old for it: from 2.4 on it can be made")
        return
    span = Span(torch, dtype, effect)
    told = str(dtype).removeprefix("torch.")

    def cast(model: Model) -> str:
        parameters = [one for one in model.module.parameters() if one.is_floating_point()]
        if not parameters:
            return "the model has no parameters of floating point"
        kind, wide = parameters[0].device.type, [one for one in parameters if one.dtype == torch.float32]
        if kind not in KINDS:
            return f"the model lies on {kind}, and that was not tried"
        if len(wide) < MAJORITY_SHARE * len(parameters):
            return f"the model is in {str(parameters[0].dtype).removeprefix('torch.')} already"
        if kind == "cuda" and dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported(False):
            return "this GPU has no bfloat16"
        if torch.is_autocast_enabled(kind) and not (span.is_open or span.lent.is_on):
            span.lent.is_over = True
            return OWN
        trains = any(one.requires_grad for one in parameters)
        if model.can_look:
            model.look_at_first_call(products_seen(torch, effect, told))
        else:
            model.around(lambda call: kept_seen(torch, effect, call, dtype))
        # No loss follows a call in evaluation mode; where one does, its ops have the fp32 that they had.
        wants_loss, part = (lambda: trains and model.module.training), is_layer(model.module)
        span.has_model = span.has_model or not part
        if part and trains:
            span.layers.add(model.module)
        model.around(lambda call: span.around(call, kind, wants_loss, part))
        if part:
            roots(torch).around_functions.setdefault(
                autocast_models,
                lambda call: span.around_function(kept_seen(torch, effect, call, dtype), kind),
            )
        return ""

    span.end_after_the_loss()
    each_model(torch, effect, cast)


class Span:
    """Where autocast is on, in each thread."""

    def __init__(self, torch: Any, dtype: Any, effect: Effect) -> None:
        self._torch, self._dtype, self._effect = torch, dtype, effect
        self._here = threading.local()
        self.lent = LentAutocast(torch, dtype, lambda: self.is_open)
        self.has_model = False  # of more than one layer
        self.layers: weakref.WeakSet[Any] = weakref.WeakSet()  # that train
        self._enter = torch.autocast.__enter__  # as it was
        self._compiling = is_compiling_of(torch)

    @property
    def is_open(self) -> bool:
        return getattr(self._here, "open", None) is not None

    def begin(self, kind: str) -> None:
        self._here.open = self._torch.autocast(kind, dtype=self._dtype)
        self._enter(self._here.open)

    def end(self) -> None:
        """Not by the compiler: it calls what ends a span as it traces a loss, and puts back what was on."""
        now = getattr(self._here, "open", None)
        if now is not None and not self._compiling() and not getattr(self._here, "inside", False):
            self._here.open = None
            now.__exit__(None, None, None)

    def is_on(self, kind: str) -> bool:
        return self.is_open and self._here.open.device == kind

    def around(
        self, call: Call, kind: str, trains: Callable[[], bool], part: bool, note: bool = True
    ) -> Call:
        """`part`: one layer, which is called as such where the job has no model."""
        torch = self._torch

        def under_autocast(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._here, "inside", False):  # a model that is part of another one today
                return call(*args, **kwargs)
            again = _in_backward(torch)
            trained = trains() and torch.is_grad_enabled() and not again
            way = _LayerCall if part and not self.has_model else _ModelCall
            this = way(torch, self, kind, trained)
            lent = self.lent.is_on
            if not (lent or this.begin()):
                if again:  # as it was in the forward pass, which checkpoints bring back
                    return self.widened(call(*args, **kwargs), this.deep_again)
                self._effect.cannot(OWN)
                return call(*args, **kwargs)
            self._here.inside = True
            done = False
            try:
                result = call(*args, **kwargs)
                done = True
            finally:
                self._here.inside = False
                this.end(done)
            wide = this.given(result)
            if note:
                self._note(kind, trained, wide is not result)
            if this.wants_loss and not lent:
                with contextlib.suppress(Exception):  # fail open: it ends later
                    this.end_without(wide)
            return wide

        return under_autocast

    def around_function(self, call: Call, kind: str) -> Call:
        """Around a function that holds the calls of layers and is compiled as a whole: the compiler goes past
        what stands around each. What was seen in them before says nothing of it, and its lines are known."""
        self._effect.seen = ""
        self._effect.missed(NOT_COMPILED_SO.format(str(self._dtype).removeprefix("torch.")))
        return self.around(call, kind, self._has_layers_in_training, part=True, note=False)

    def _has_layers_in_training(self) -> bool:
        return any(layer.training for layer in self.layers)

    def widened(self, result: Any, deep: bool) -> Any:
        return _widened(self._torch, result, self._dtype, deep)

    @property
    def mark(self) -> _Mark | None:
        """In the graph that it waits for, while that is there."""
        left = self._here.left
        return left() if left else None

    def end_with(self, nodes: list[Any], mark: _Mark) -> None:
        """End when the graph of what a model gave is gone: no loss comes of it then. What is in a node's
        metadata is there as long as anything in the graph holds the node."""
        now = self._here.open
        for node in nodes:
            node.metadata[_Mark] = mark

        def gone(_: Any) -> None:
            if getattr(self._here, "open", None) is now:  # in this thread, and no later one
                self.end()

        self._here.left = weakref.ref(mark, gone) if nodes else None

    def _note(self, kind: str, wants_loss: bool, widened: bool) -> None:
        """The job's line that calls the model; the first that a loss comes from waits for its end."""
        if not self._effect.looks:
            return
        place = self._effect.at(CALLED, value=kind, given=[TRAINS] * wants_loss + [WIDENED] * widened)
        if wants_loss and getattr(self._here, "first", None) is None:
            self._here.first = place

    def _note_backward(self) -> None:
        first, self._here.first = getattr(self._here, "first", None), None
        if first is not None and (last := place_now(SPAN)) is not None:
            library = last.library or first.library
            self._effect.keep(replace(first, kind=SPAN, given=(), library=library, until=last.spots))

    def _note_end(self) -> None:
        self._here.first = None
        self.end()

    def end_after_the_loss(self) -> None:
        """With the backward pass; or when an optimizer's step begins, or a model is put into training or
        evaluation mode: what comes then is not the loss. An autocast of the job's own would bring ours back
        where it ends, if ours ended inside of it: it ends before."""
        autograd, module = self._torch.autograd, self._torch.nn.Module
        for home, name, make in (
            (autograd, "backward", self._ending),
            (autograd, "grad", self._ending),
            (module, "train", self._before),
            (self._torch.autocast, "__enter__", lambda call: self._before(self.lent.entering(call))),
            (self._torch.autocast, "__exit__", self.lent.leaving),
            (self._torch.nn.functional, "binary_cross_entropy", self._without),
        ):
            REGISTRY.wrap(BY, home, name, make, past_end=APPLIED)
        optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
        hook = optimizers.register_optimizer_step_pre_hook(lambda *_: self._note_end())
        REGISTRY.hold(BY, STEP_PRE_HOOK, hook.remove, past_end=APPLIED)

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ended(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):  # fail open: its line is for a patch alone
                self._note_backward()
            self.end()
            return original(*args, **kwargs)

        return ended

    def _before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def ended(*args: Any, **kwargs: Any) -> Any:
            self.end()
            return original(*args, **kwargs)

        return ended

    def _without(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A loss that autocast refuses: of probabilities, which 16 bits are too few for."""

        @functools.wraps(original)
        def wide(*args: Any, **kwargs: Any) -> Any:
            now = getattr(self._here, "open", None)
            if now is None:
                return original(*args, **kwargs)
            self._effect.at(REFUSED)
            off = self._torch.autocast(now.device, enabled=False)
            self._enter(off)
            try:
                return original(
                    *(_wide(self._torch, one, self._dtype) for one in args),
                    **{name: _wide(self._torch, one, self._dtype) for name, one in kwargs.items()},
                )
            finally:
                off.__exit__(None, None, None)

        return wide


class _ModelCall:
    """How autocast goes with one call of a model: it begins with it, and lasts where a loss may follow."""

    deep_again = False  # what is given where it runs again

    def __init__(self, torch: Any, span: Span, kind: str, trained: bool) -> None:
        self._torch, self._span, self._kind = torch, span, kind
        self.wants_loss = trained

    def begin(self) -> bool:
        """Not where the job's own is on."""
        self._span.end()
        if self._torch.is_autocast_enabled(self._kind):
            return False
        self._span.begin(self._kind)
        return True

    def end(self, done: bool) -> None:
        if not (done and self.wants_loss):
            self._span.end()

    def given(self, result: Any) -> Any:
        return self._span.widened(result, deep=not self.wants_loss)

    def end_without(self, result: Any) -> None:
        """End when no loss can come of what was given any more: at once where it has no graph."""
        nodes = list(_nodes(self._torch, result))
        self._span.end_with(nodes, _Mark())
        if not nodes and isinstance(result, self._torch.Tensor):
            self._span.end()


class _LayerCall(_ModelCall):
    """The same with a layer where the job has no model: one of the calls that make its forward pass, with its
    own code between them. It lasts from the first to the loss then, also over those without gradients, and
    what they give stays as it is."""

    deep_again = True

    def __init__(self, torch: Any, span: Span, kind: str, trained: bool) -> None:
        super().__init__(torch, span, kind, trained and not _is_checkpointed(torch))
        self._goes_on = span.is_on(kind)

    def begin(self) -> bool:
        if not self._goes_on:
            return super().begin()
        # Casts of weights are kept while it is on: those may have changed since.
        self._torch.clear_autocast_cache()
        return True

    def end(self, done: bool) -> None:
        if not (done and self._goes_on):
            super().end(done)
        elif not self.wants_loss:  # casts that were made without gradients
            self._torch.clear_autocast_cache()

    def given(self, result: Any) -> Any:
        return result if self.wants_loss else super().given(result)

    def end_without(self, result: Any) -> None:
        """What other layers gave before counts as well."""
        if not self._goes_on:
            super().end_without(result)
        elif nodes := list(_nodes(self._torch, result)):
            self._span.end_with(nodes, self._span.mark or _Mark())


class _Mark:
    """Lives as long as the graph that it is put in."""


def _nodes(torch: Any, result: Any) -> Iterator[Any]:
    """Where a backward pass may enter what a model gave."""
    if isinstance(result, torch.Tensor):
        if result.grad_fn is not None:
            yield result.grad_fn
    elif isinstance(result, (tuple, list, Mapping)):
        for one in result.values() if isinstance(result, Mapping) else result:
            yield from _nodes(torch, one)


def _in_backward(torch: Any) -> bool:
    """A forward pass that is recomputed there."""
    return bool(torch._C._current_graph_task_id() != -1)


def _is_checkpointed(torch: Any) -> bool:
    """Whether the backward pass runs this part of the forward pass once more, when no loss follows it: what
    it gives must have the same number formats here and there."""
    with contextlib.suppress(AttributeError, TypeError, RuntimeError):  # other torches may not tell
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        return hooks is not None and hooks[0].__module__ == "torch.utils.checkpoint"
    return False


def _wide(torch: Any, value: Any, dtype: Any) -> Any:
    return value.float() if type(value) is torch.Tensor and value.dtype == dtype else value


def _widened(torch: Any, result: Any, dtype: Any, deep: bool) -> Any:
    """What a model gives is in fp32 as before, for code that goes on with it (numpy knows no bfloat16). With
    gradients wanted, only where it is all that the model gives: losses read fp32 in any case."""
    if not deep:
        return _wide(torch, result, dtype)
    if type(result) in (tuple, list):
        return type(result)(_wide(torch, one, dtype) for one in result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_wide(torch, one, dtype) for one in result))
    if type(result) is dict:
        return {name: _wide(torch, one, dtype) for name, one in result.items()}
    if dataclasses.is_dataclass(result):
        with contextlib.suppress(Exception):  # fail open: it is given as it came
            return _widened_fields(torch, result, dtype)
    return _wide(torch, result, dtype)


def _widened_fields(torch: Any, result: Any, dtype: Any) -> Any:
    """A copy, as a model may keep what it gave. Hugging Face's outputs set their keys with their fields."""
    made = copy.copy(result)
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        wide = _wide(torch, value, dtype)
        if wide is not value:
            frozen = made.__dataclass_params__.frozen
            (object.__setattr__ if frozen else setattr)(made, field.name, wide)
    return made
