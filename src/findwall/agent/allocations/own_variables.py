"""The variables of the job's own that an exception can still reach, by their names.

Those of its frames, of the modules of its own files, and the attributes of the objects in both. No property
and no method of the job's is called.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from inspect import CO_OPTIMIZED
from types import FrameType, FunctionType, ModuleType
from typing import Any

from findwall.agent.timing.sampler import is_library

Named = tuple[str, str | None, Any]  # a variable, the function that it is one of, and what it is
LISTS, MAPPINGS = (list, tuple, deque, set), (dict, OrderedDict, defaultdict)
SIMPLE = (type, ModuleType, FunctionType, str, int, float, *LISTS, *MAPPINGS)
MOST_FRAMES = 100  # the innermost
COPIES_VARIABLES = sys.version_info < (3, 13)  # a frame keeps a copy of them for whoever asks
KEPT = {"_parameters", "_buffers", "_modules", "state", "param_groups"}  # of models and optimizers
REFERENCES = 3  # to such a copy, where nobody else has it: the frame's, ours, the counter's own


def named(error: BaseException, keepers: tuple[type, ...]) -> Iterator[Named]:
    """The innermost frame's first. `keepers`: kinds of objects that keep tensors on purpose; only what else
    the job has put there is told."""
    frames = _own_frames(error)
    for frame in frames:
        if frame.f_code.co_flags & CO_OPTIMIZED:  # of a module they are its globals
            for name, value in variables(frame):
                yield from _with_attributes(name, frame.f_code.co_name, value, keepers)
    for of_module in {id(frame.f_globals): frame.f_globals for frame in frames}.values():
        for name, value in list(of_module.items()):
            yield from _with_attributes(name, None, value, keepers)


def _own_frames(error: BaseException) -> list[FrameType]:
    trace, frames = error.__traceback__, []
    while trace is not None:
        if not is_library(trace.tb_frame.f_code.co_filename):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames[: -MOST_FRAMES - 1 : -1]


def variables(frame: FrameType) -> list[tuple[str, Any]]:
    """A copy that the frame keeps would hold on to what the job lets go of later: it is emptied."""
    copy: Any = frame.f_locals
    variables = list(copy.items())
    if COPIES_VARIABLES and sys.getrefcount(copy) <= REFERENCES:
        copy.clear()
    return variables


def _with_attributes(
    name: str, function: str | None, value: Any, keepers: tuple[type, ...]
) -> Iterator[Named]:
    yield name, function, value
    kind = type(value)
    if issubclass(kind, SIMPLE):
        return
    attributes: Any = None
    with suppress(Exception):  # whatever it is
        attributes = object.__getattribute__(value, "__dict__")
    if type(attributes) is not dict:
        return
    kept = KEPT if issubclass(kind, keepers) else ()
    for inner, of in list(attributes.items()):
        if inner not in kept:
            yield f"{name}.{inner}", function, of
