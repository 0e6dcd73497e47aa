"""The job finds the modules that plain Python would find: what findwall has loaded for itself is hidden.

Findwall needs modules before the job's first line. In plain Python the job would be the one to import them,
and a `statistics.py` beside the script would win. So they leave `sys.modules` (findwall keeps its references)
and come back one by one as they are asked for: the same object where the search along the job's `sys.path`
ends at the same file, else what it ends at. Whatever plain Python loads before a script, builtin and frozen
modules included, stays where it is, as there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from findwall.apply.registry import REGISTRY

ASKS = "the job may yet ask for a module that is hidden"
OWN = __name__.partition(".")[0]
# What findwall imports only later, inside the job: by then the job's own might be found instead.
LATER = (
    "pynvml",
    "email.parser",  # of importlib.metadata, which asks for it only when versions are looked up
    "email.message",
    f"{OWN}.machine.environment",
    f"{OWN}.machine.neighbours",
    f"{OWN}.agent.surroundings",
    f"{OWN}.agent.timing.telemetry",
    f"{OWN}.machine.ceilings.cache",
    f"{OWN}.machine.ceilings.numpy_cores",
)


def hide_own_modules() -> None:
    """From here on names resolve as in plain Python. To be called before the job's path is set."""
    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    hidden, aliases = _brought_along()
    for name in (*hidden, *aliases):
        del sys.modules[name]
    finder = _Returning(hidden, aliases)
    REGISTRY.add(
        "session", "sys.meta_path: returns what is hidden", sys.meta_path, finder, first=True, past_end=ASKS
    )


def _brought_along() -> tuple[dict[str, ModuleType], dict[str, Any]]:
    """Modules that plain Python would not have here; and names that such a module has set for a part of it.

    `site` is the last that plain Python loads before a script, with all that it loads itself.
    """
    names = list(sys.modules)
    first = names.index("site" if "site" in sys.modules else "__main__") + 1
    hidden: dict[str, ModuleType] = {}
    for name in names[first:]:
        if name.partition(".")[0] not in (OWN, "encodings", "__main__", "__mp_main__") and _is_found_by_path(
            name
        ):
            hidden[name] = sys.modules[name]
    aliases = {
        name: sys.modules[name]
        for name in names[first:]
        if name not in hidden and name.rpartition(".")[0] in hidden
    }
    return hidden, aliases


def _is_found_by_path(name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)
    if not isinstance(spec, ModuleSpec) or spec.name != name:
        return False
    loader: object = spec.loader
    return loader is not BuiltinImporter and loader is not FrozenImporter


class _Returning(MetaPathFinder):
    """Gives a hidden module back to the first who asks for its name, if that is what would be found."""

    def __init__(self, hidden: dict[str, ModuleType], aliases: dict[str, Any]) -> None:
        self._hidden, self._aliases = hidden, aliases
        self._all = dict(hidden)
        self._needed: dict[str, set[str]] = {}
        self._own: tuple[tuple[str, ...], dict[str, bool]] = ((), {})

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self._hidden.pop(fullname, None)
        if module is None:
            return None
        spec = self._found(fullname, path, target)
        if not _is_same(spec, module) or any(self._is_the_jobs(name) for name in self._needs(fullname)):
            return spec
        loader = _Given(module, self._parts(fullname), self._hidden)
        return ModuleSpec(fullname, loader, origin=spec.origin if spec is not None else None)

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _parts(self, name: str) -> dict[str, Any]:
        return {alias: part for alias, part in self._aliases.items() if alias.rpartition(".")[0] == name}

    def _is_the_jobs(self, name: str) -> bool:
        """Whether a module of the job's own has this name, along the path as it is now."""
        path, known = self._own
        if path != tuple(sys.path):
            path, known = self._own = (tuple(sys.path), {})
        if name not in known:
            loaded = sys.modules.get(name)
            if loaded is not None:
                known[name] = loaded is not self._all[name]
            else:
                known[name] = not _is_same(self._found(name, None, None), self._all[name])
        return known[name]

    def _needs(self, name: str) -> set[str]:
        """The hidden modules it was built from: with another of these it would be another itself."""
        if name not in self._needed:
            needed: set[str] = set()
            waiting = [name]
            while waiting:
                for other in _imports(self._all[waiting.pop()]):
                    top = other.partition(".")[0]
                    if top in self._all and top not in needed:
                        needed.add(top)
                        waiting.append(top)
            self._needed[name] = needed
        return self._needed[name]


class _Given(Loader):
    def __init__(self, module: ModuleType, parts: dict[str, Any], hidden: dict[str, ModuleType]) -> None:
        self._module, self._parts, self._hidden = module, parts, hidden
        self._spec = module.__spec__

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It was executed long ago; what it imports comes back with it, as importing it would bring it."""
        module.__spec__ = self._spec
        for name, part in self._parts.items():
            sys.modules.setdefault(name, part)
        for name in dict.fromkeys(_imports(module)):
            if name in self._hidden:
                importlib.import_module(name)


def _is_same(spec: ModuleSpec | None, module: ModuleType) -> bool:
    own = getattr(module.__spec__, "origin", None)
    if spec is None or spec.origin is None or own is None:
        return spec is not None and spec.origin == own
    if spec.origin == own:
        return True
    try:
        return os.path.samefile(spec.origin, own)  # noqa: PTH121 - reached through a link
    except OSError:
        return False


def _imports(module: ModuleType) -> Iterable[str]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, (FunctionType, type)) and isinstance(value.__module__, str):
            yield value.__module__
