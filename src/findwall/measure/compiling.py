"""Compile the models that a job calls, as they are called first."""

from __future__ import annotations

import importlib
from typing import Any

from findwall.measure.applying import Effect
from findwall.measure.roots import roots

TORCHS = "torch's"  # a model of a class that torch brings
NO_GRAPH = "the compiler made no graph of the models that the job calls"
WRAPPED = (
    "the compiler makes no graph of torch's own modules inside DistributedDataParallel: compile the model "
    "before it is wrapped"
)


def compile_models(torch: Any, effect: Effect, **how: Any) -> None:
    """Each outermost module, in place; what the compiler made of it is the proof."""
    if not hasattr(torch.nn.Module, "compile"):
        effect.cannot(f"torch {torch.__version__} cannot compile a module in place")
        return

    def compiled(module: Any, _args: tuple[Any, ...]) -> None:
        if module._compiled_call_impl is None:
            # As `module.compile()`, which leaves out models that are made of torch's own modules alone: the
            # compiler begins at the first frame that is none of torch's.
            inline = importlib.import_module("torch._dynamo.external_utils").wrap_inline
            module._compiled_call_impl = torch.compile(inline(module._call_impl), **how)
            effect.at("call", value=TORCHS if type(module).__module__.startswith("torch.") else "")
            effect.missed(WRAPPED if _is_wrapped(torch, module) else NO_GRAPH)

    roots(torch).tell(compiled)
    effect.at_end(lambda: _graphs(torch, effect))


def _is_wrapped(torch: Any, module: Any) -> bool:
    """A model of torch's own modules inside DistributedDataParallel, whose frames the compiler passes by."""
    wrapper = getattr(torch.nn.parallel, "DistributedDataParallel", ())
    return isinstance(module, wrapper) and type(module.module).__module__.startswith("torch.")


def _graphs(torch: Any, effect: Effect) -> str:
    stats = torch._dynamo.utils.counters["stats"]
    graphs, ops = stats.get("unique_graphs", 0), stats.get("calls_captured", 0)
    if ops > graphs:
        return f"{graphs} compiled graph{'s' if graphs > 1 else ''} of {ops} ops"
    if graphs:  # a job that calls single layers: the rest of its model is in functions of its own
        effect.missed(
            "the modules that the job calls are single ops, which leaves nothing to fuse: put "
            "@torch.compile on the function that calls them"
        )
    return ""
