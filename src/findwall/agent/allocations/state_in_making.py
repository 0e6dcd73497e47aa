"""How much an optimizer's state takes once it is complete, told while it is being made.

The first update makes it parameter by parameter, as many bytes for each byte of a parameter.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from findwall.agent.allocations.live_tensors import MOST_TENSORS, is_plain, objects_of, stepped_by
from findwall.model.memory_history import HOST

FEWEST_WHOLE = 2  # parameters with all of their state: the first may itself be in the making


class _Made(msgspec.Struct, frozen=True):
    """Of one parameter, in bytes."""

    own: int
    state: int
    tensors: int


def full_state(torch: Any, device: int, among: int) -> int | None:
    """Bytes on this device; None where every parameter has its state, or nobody can tell. `among`: not where
    the job has more objects."""
    with suppress(Exception):  # the job's own objects may be anything
        optimizers = objects_of(torch.optim.Optimizer, among=among)
        made = [_made(torch, one, device) for one in optimizers]
        wholes = [_whole(rows) for rows in made]
        if any(len(whole) < len(rows) for rows, whole in zip(made, wholes, strict=True)):
            return sum(map(_full, made, wholes))
    return None


def _made(torch: Any, optimizer: Any, device: int) -> list[_Made]:
    """Of each parameter that is updated."""
    state = optimizer.__dict__.get("state")
    rows: list[_Made] = []
    for one in stepped_by(optimizer)[:MOST_TENSORS]:
        if not _lies_on(torch, one, device) or not one.is_leaf or one.grad is None:
            continue
        mine = state.get(one) if isinstance(state, dict) else None
        values = list(mine.values()) if isinstance(mine, dict) else []
        sizes = [value.nbytes for value in values if _lies_on(torch, value, device) and value.dim()]
        rows.append(_Made(one.nbytes, sum(sizes), len(sizes)))
    return rows


def _lies_on(torch: Any, one: Any, device: int) -> bool:
    return is_plain(torch, one) and (HOST if one.device.type == "cpu" else one.device.index) == device


def _whole(rows: list[_Made]) -> list[_Made]:
    """Those that have all of it; all, where it takes nothing or too little of it is made."""
    most = max((row.tensors for row in rows), default=0)
    whole = [row for row in rows if row.tensors == most]
    return whole if len(whole) >= FEWEST_WHOLE else rows


def _full(rows: list[_Made], whole: list[_Made]) -> int:
    share = sum(row.state for row in whole) / max(sum(row.own for row in whole), 1)
    return round(share * sum(row.own for row in rows))
