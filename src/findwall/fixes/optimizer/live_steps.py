"""Optimizers that exist already, stepping in another way until that is taken back.

A fused step keeps the number of steps beside the parameters, on their device; the others on the host. So it
is moved there, and back with what was counted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.job_state import seen_job
from findwall.apply.registry import APPLIED, REGISTRY

WAYS = ("fused", "foreach")
COUNT = "step"  # of an optimizer's state: how many it has taken


def step_live(torch: Any, effect: Effect, way: str, why_not: Callable[[Any], str]) -> None:
    """Each optimizer of the job that can, `fused` or `foreach`. What it had when it stepped is the proof."""
    effect.missed("the job has no optimizer of torch's own")
    for optimizer in list(seen_job(torch).optimizers):
        name = type(optimizer).__name__
        if why := why_not(optimizer):
            effect.missed(f"{name} {why}")
            continue
        _Live(optimizer, way)
        effect.missed(f"{name} did not step while it had {way}=True")
        hook = optimizer.register_step_post_hook(_seen(effect, way))
        REGISTRY.hold(f"{way}-optimizer", f"{name}.register_step_post_hook", hook.remove, past_end=APPLIED)


def _seen(effect: Effect, way: str) -> Callable[..., None]:
    def stepped(optimizer: Any, *_: Any) -> None:
        if all(group[way] for group in optimizer.param_groups):
            effect.saw(f"{way}=True in {type(optimizer).__name__}")

    return stepped


class _Live:
    """One optimizer with another way to step, until the registry takes it back."""

    def __init__(self, optimizer: Any, way: str) -> None:
        self._groups = [
            (group, {one: group[one] for one in WAYS if one in group}) for group in optimizer.param_groups
        ]
        self._counts: list[tuple[dict[str, Any], Any]] = []  # as they were, by the values that hold them
        for group, before in self._groups:
            group.update({one: one == way or None for one in before})
        if way == "fused":
            self._move_counts(optimizer)
        what = f"{type(optimizer).__name__}().param_groups"
        REGISTRY.hold(f"{way}-optimizer", what, self._take_back, past_end=APPLIED)

    def _move_counts(self, optimizer: Any) -> None:
        for param, values in optimizer.state.items():
            count = values.get(COUNT)
            if hasattr(count, "data_ptr") and count.device != param.device:
                self._counts.append((values, count))
                values[COUNT] = count.to(param.device)

    def _take_back(self) -> bool:
        for group, before in self._groups:
            group.update(before)
        for values, count in self._counts:
            count.copy_(values[COUNT])
            values[COUNT] = count
        self._counts = []
        return True
