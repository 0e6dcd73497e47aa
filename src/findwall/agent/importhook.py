"""Call back when the job has imported torch. It is never imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from findwall.apply.registry import REGISTRY, Put


class _AfterImport(MetaPathFinder):
    """Finds one module like everybody else would, and notes when it has been executed."""

    def __init__(self, name: str, by: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.by = name, by
        self.then = then
        self.put: Put | None = None
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        # The loader stays the one that python chose: only this one call of its exec_module is watched.
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)  # two may watch the same import
            if self.put is not None:
                self.put.undo()
            execute(module)
            self.then(module)

        loader.exec_module = exec_module


def when_imported(name: str, then: Callable[[ModuleType], None], by: str, past_trace: str) -> None:
    """Call `then(module)` once `name` is imported; now, if it already is. Who asks again is called once."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
        return
    for finder in sys.meta_path:
        if isinstance(finder, _AfterImport) and (finder.name, finder.by) == (name, by):
            finder.then = then
            return
    finder = _AfterImport(name, by, then)
    what = f"sys.meta_path: waits for {name}"
    finder.put = REGISTRY.add(by, what, sys.meta_path, finder, first=True, past_trace=past_trace)
