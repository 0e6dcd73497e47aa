"""The job's own objects, as Python's collector knows them: looked at, never asked."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from itertools import compress
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from findwall.agent.allocations.own_variables import variables
from findwall.agent.timing.sampler import is_library

MOST_TENSORS = 20_000  # that are looked at one by one; chosen by hand
PASSED_BY = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def objects_of(*kinds: type, among: int | None = None) -> list[Any]:
    """Those of these kinds. Their type is looked at, never asked: proxies answer with work. `among`: raises
    where the job has more objects. What was frozen the collector names no more: of that, what the job's own
    variables lead to."""
    found = _of_kinds(gc.get_objects(), kinds, among)
    if gc.get_freeze_count():
        known = set(map(id, found))
        found += [one for one in _of_kinds(_reached(), kinds, among) if id(one) not in known]
    return found


def _of_kinds(every: list[Any], kinds: tuple[type, ...], among: int | None) -> list[Any]:
    """Each type is looked at once, as there are a thousand times as many objects."""
    if among is not None and len(every) > among:
        raise RuntimeError(f"the job holds {len(every)} objects")
    wanted = {one for one in set(map(type, every)) if issubclass(one, kinds)}
    return list(compress(every, map(wanted.__contains__, map(type, every))))


def _reached() -> list[Any]:
    """All that the job's variables hold, those of this thread's functions and of its script, and what these
    hold in turn. Not what leads everywhere, and no data: what has more entries than tensors are looked at."""
    ahead, found = list(_variables()), dict[int, Any]()
    while ahead:
        fresh = {id(one): one for one in ahead if id(one) not in found and not _is_passed_by(one)}
        found |= fresh
        ahead = [one for one in gc.get_referents(*fresh.values()) if gc.is_tracked(one)]
    return list(found.values())


def _is_passed_by(one: Any) -> bool:
    kind = type(one)
    return issubclass(kind, PASSED_BY) or (kind in (list, tuple, dict, set) and len(one) > MOST_TENSORS)


def _variables() -> Iterator[Any]:
    yield vars(sys.modules["__main__"])
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        # Those of a module are its globals, of which nobody makes a copy.
        if frame.f_code.co_flags & CO_OPTIMIZED and not is_library(frame.f_code.co_filename):
            yield from (value for _, value in variables(frame))
        frame = frame.f_back


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
