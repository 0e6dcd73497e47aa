"""What lies where: parameters, gradients and optimizer state, by the storages that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from findwall.agent.allocations.live_tensors import (
    MOST_TENSORS,
    held_by,
    is_plain,
    objects_of,
    stepped_by,
)
from findwall.model.measurement import KnownAddresses
from findwall.model.memory_history import HOST


def known_addresses(torch: Any, among: int | None = None) -> KnownAddresses:
    """Of this moment. Views of one storage are one row, of the first kind that they are. `among`: raises
    where the job has more objects."""
    objects = objects_of(torch.nn.Module, torch.optim.Optimizer, among=among)
    optimizers = [one for one in objects if issubclass(type(one), torch.optim.Optimizer)]
    modules = [one for one in objects if issubclass(type(one), torch.nn.Module)]
    parameters = [one for module in modules for one in held_by(module, "_parameters")]
    parameters += [one for optimizer in optimizers for one in stepped_by(optimizer)]
    mine = {id(one): one for one in parameters if is_plain(torch, one)}
    state = [one for optimizer in optimizers for one in _state_of(optimizer)]
    if len(mine) + len(state) > MOST_TENSORS:
        raise RuntimeError(f"the job holds {len(mine)} parameters and {len(state)} tensors of state")
    seen: set[tuple[int, int]] = set()
    return KnownAddresses(
        _rows(torch, mine.values(), seen),
        _rows(torch, (one.grad for one in mine.values() if one.is_leaf), seen),
        _rows(torch, state, seen),
        bool(optimizers) and all(_tells_all_state(torch, one) for one in optimizers),
    )


def _state_of(optimizer: Any) -> list[Any]:
    """Tensors only: steps are often plain numbers."""
    state = optimizer.__dict__.get("state")
    found = []
    for of_parameter in list(state.values()) if isinstance(state, dict) else ():
        found += list(of_parameter.values()) if isinstance(of_parameter, dict) else [of_parameter]
    return found


def _tells_all_state(torch: Any, optimizer: Any) -> bool:
    """Whether what it holds are tensors that lie in memory, and plain numbers. One of the job's own may keep
    it elsewhere, unless some is there."""
    held = _state_of(optimizer)
    is_torchs = type(optimizer).__module__.startswith("torch.optim.")
    return (bool(held) or is_torchs) and all(
        is_plain(torch, one) or one is None or type(one) in (bool, int, float) for one in held
    )


def _rows(torch: Any, tensors: Iterable[Any], seen: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
    rows = []
    for one in tensors:
        if not is_plain(torch, one) or one.device.type not in ("cpu", "cuda"):
            continue
        storage = one.untyped_storage()
        device = HOST if one.device.type == "cpu" else int(one.device.index)
        row = device, int(storage.data_ptr()), int(storage.nbytes())
        if row[2] and row[:2] not in seen:
            seen.add(row[:2])
            rows.append(row)
    return rows
