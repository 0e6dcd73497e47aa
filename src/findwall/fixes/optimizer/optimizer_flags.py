"""The way in which optimizers step (`fused`, `foreach`), kept where a loaded checkpoint would undo it.

A checkpoint has the groups of the optimizer that it was saved from, with the way in which that one stepped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from findwall.apply.applying import Effect

LOADED = "loaded"  # a place: the job loads a state that was saved without it


class KeptWay:
    """What a fix sets in the groups of optimizers. The proof is what each had in its last step."""

    def __init__(self, effect: Effect, way: str, **also: Any) -> None:
        self._effect, self._way = effect, way
        self._values: Mapping[str, Any] = {way: True, **also}
        self._made: list[_Made] = []
        effect.at_end(self._told)

    def keep(self, optimizer: Any) -> None:
        """In one that has it now."""
        made = _Made(type(optimizer).__name__)
        self._made.append(made)

        def stepped(optimizer: Any, *_: Any) -> None:
            made.has_it = self._has(optimizer.param_groups)

        optimizer.register_step_post_hook(stepped)
        before_loading = getattr(optimizer, "register_load_state_dict_pre_hook", None)  # not in an old torch
        if before_loading is not None:
            before_loading(self._loaded)

    def _loaded(self, _optimizer: Any, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """As it is loaded: what the optimizer keeps for it is then made as this way wants it."""
        groups = state["param_groups"]
        others = {"fused", "differentiable"} - {self._way}  # which it does not go together with
        if self._has(groups) or any(group.get(one) for group in groups for one in others):
            return None
        self._effect.at(LOADED)
        return {**state, "param_groups": [{**group, **self._values} for group in groups]}

    def _has(self, groups: list[dict[str, Any]]) -> bool:
        return all(group.get(self._way) for group in groups)

    def _told(self) -> str:
        has_it = [one.name for one in self._made if one.has_it]
        if self._made and not has_it:
            name = self._made[0].name
            self._effect.missed(f"{name} stepped without {self._way}=True at last: the job took it out")
        return f"{self._way}=True in {has_it[0]}" if has_it else ""


class _Made:
    """An optimizer, which may be gone by the end."""

    def __init__(self, name: str) -> None:
        self.name, self.has_it = name, True
