"""How much a step works on where no data loader says it: the model's first input, times the micro-steps.

The input is seen from the sampler's thread, on the job's stack; how often a step calls the model is told by
the trace: every backward pass adds to the gradient of each parameter once. Nothing is hooked for either.
"""

from __future__ import annotations

from collections import Counter
from types import CodeType, FrameType
from typing import Any

from findwall.agent.engine import Engine
from findwall.agent.step_ends.forward import outermost_call
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.machine import torch_device as machine
from findwall.model.catalogue import NEARLY_ALL

TOKENS = "tokens"


class Inputs:
    """Sizes of what the outermost module with parameters was called with."""

    def __init__(self, torch: Any) -> None:
        call = getattr(torch.nn.Module, "_wrapped_call_impl", None)  # older torch has another
        self._call: CodeType | None = getattr(call, "__code__", None)
        self._seen: Counter[tuple[float, str]] = Counter()

    def look(self, frame: FrameType) -> None:
        """Called on the sampler's thread: torch is asked for shapes only."""
        call = None if self._call is None else outermost_call(frame, self._call)
        if call is None:
            return
        found = call.f_locals
        if next(found["self"].parameters(), None) is None:
            return  # a loss is a module too
        size = machine.batch_size((*found["args"], *found["kwargs"].values()))
        if size is not None:
            self._seen[size] += 1

    def size(self) -> tuple[float, str] | None:
        """The one size that (almost) all had; tokens before samples, where a part of the model takes them."""
        tokens = Counter({size: count for size, count in self._seen.items() if size[1] == TOKENS})
        seen = tokens or self._seen
        if not seen:
            return None
        [(size, count)] = seen.most_common(1)
        return size if count >= NEARLY_ALL * seen.total() else None


def micro_steps(engine: Engine, traced: int) -> int | None:
    """Calls of the model per traced step; None if that cannot be told. To be asked after the export."""
    if engine.finder.source is StepEnd.FORWARD:
        return 1
    if not engine.parameters or engine.window is None or traced < 1 or len(engine.finder.known) > 1:
        return None
    passes, rest = divmod(engine.window.gradients, engine.parameters * traced)
    return passes if passes and not rest else None


def count_inputs(engine: Engine, inputs: Inputs) -> None:
    """Samples or tokens per step, unless the loader has said so."""
    size = inputs.size()
    if engine.record.samples_per_step is None and size is not None and engine.micro_steps is not None:
        engine.record.samples_per_step = size[0] * engine.micro_steps
        engine.record.sample_unit = size[1]
