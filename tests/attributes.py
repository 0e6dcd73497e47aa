"""Every attribute of the torch that is loaded and of what Python lets one hook into, by identity.

Used inside jobs as well, so it needs nothing but Python. It knows nothing of findwall's registry: it compares
all there is.
"""

from __future__ import annotations

import builtins
import functools
import gc
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from types import FunctionType, MethodType, ModuleType
from typing import Any

Seen = dict[str, Any]  # by its name: the object itself, so that no other gets its address
PYTHONS = (builtins, gc, random, signal, threading, warnings)
HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook")
FOLDERS = (
    "/findwall/agent/",
    "/findwall/apply/",
    "/findwall/machine/",
    "/findwall/fixes/",
)  # of what runs in a job
MANY = 64  # parts of a list: one that is longer is a table


def look() -> Seen:
    """As it is now."""
    seen: Seen = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            _look_at(seen, name, module)
    for module in PYTHONS:
        _look_at(seen, module.__name__, module)
    seen.update({f"sys.{name}": getattr(sys, name) for name in HOOKS})
    seen["sys.gettrace"], seen["sys.getprofile"] = sys.gettrace(), sys.getprofile()
    seen["sys.meta_path[]"], seen["sys.path_hooks[]"] = tuple(sys.meta_path), tuple(sys.path_hooks)
    for number in signal.Signals:
        seen[f"handler of {number.name}"] = signal.getsignal(number)
    return seen


def _look_at(seen: Seen, name: str, owner: Any) -> None:
    if name in seen:
        return
    seen[name] = owner
    for attribute, value in list(vars(owner).items()):
        key = f"{name}.{attribute}"
        if isinstance(value, ModuleType):  # each is looked at by its own name
            continue
        if isinstance(value, type):
            seen[f"{key} (class)"] = value
            if value.__module__.partition(".")[0] == "torch":
                _look_at(seen, f"{value.__module__}.{value.__qualname__}", value)
            continue
        seen[key] = value
        if isinstance(value, (list, set, dict)):
            seen[f"{key}[]"] = _contents(value)


def _contents(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(part for pair in list(value.items()) for part in pair)
    return tuple(value)


def changed(before: Seen, after: Seen) -> set[str]:
    """What is another object than it was, gone, or new in a module or class that was there."""
    found = {name for name, value in before.items() if name not in after or not _same(value, after[name])}
    owners = {name for name in before if name in after}
    return found | {name for name in set(after) - set(before) if name.rpartition(".")[0] in owners}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return one is other


def findwalls(seen: Seen) -> set[str]:
    """What is made of findwall's code, wherever it is: also in modules that were loaded since."""
    return {
        name for name, value in seen.items() if any(one in file for file in _files(value) for one in FOLDERS)
    }


def _files(value: Any) -> Iterator[str]:
    """Where the code of a callable, or of the parts of a container, is written."""
    if isinstance(value, tuple):
        for part in value:
            yield from _files(part)
    elif isinstance(value, (staticmethod, classmethod, MethodType)):
        yield from _files(value.__func__)
    elif isinstance(value, functools.partial):
        yield from _files(value.func)
    elif isinstance(value, FunctionType):
        yield value.__code__.co_filename
    elif type(value).__module__.startswith("findwall."):
        yield FOLDERS[0]


def named(value: Any) -> str:
    """What is the same in another process."""
    if isinstance(value, tuple):
        return ", ".join(map(named, value)) if len(value) < MANY else ""
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"{name} {' '.join(_files(value))}".strip()


def once_executed(name: str, then: Callable[[], None]) -> None:
    """Call this when a module has been executed, before whoever else waits for its import hears of it."""

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> Any:
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)  # type: ignore[arg-type]
            spec = PathFinder.find_spec(wanted, path, target)
            assert spec is not None and spec.loader is not None
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(sys.meta_path.index(PathFinder), Finder)  # type: ignore[arg-type]
