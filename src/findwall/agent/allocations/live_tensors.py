"""The job's own objects, as Python's collector knows them: looked at, never asked."""

from __future__ import annotations

import gc
from itertools import compress
from typing import Any

MOST_TENSORS = 20_000  # that are looked at one by one; chosen by hand


def objects_of(*kinds: type, among: int | None = None) -> list[Any]:
    """Those of these kinds. Their type is looked at, never asked: proxies answer with work. `among`: of no
    more objects in all. Each type is looked at once, as there are a thousand times as many objects."""
    every = gc.get_objects()
    if among is not None and len(every) > among:
        raise RuntimeError(f"the job holds {len(every)} objects")
    wanted = {one for one in set(map(type, every)) if issubclass(one, kinds)}
    return list(compress(every, map(wanted.__contains__, map(type, every))))


def is_plain(torch: Any, tensor: Any) -> bool:
    """No subclass, which may do anything, and one that lies in memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return tensor.layout is torch.strided and tensor.device.type != "meta"


def stepped_by(optimizer: Any) -> list[Any]:
    """What an optimizer updates."""
    return [one for group in getattr(optimizer, "param_groups", ()) for one in group.get("params", ())]


def held_by(module: Any, *names: str) -> list[Any]:
    """What a module holds under `_parameters` or `_buffers`."""
    return [one for name in names for one in (module.__dict__.get(name) or {}).values()]
