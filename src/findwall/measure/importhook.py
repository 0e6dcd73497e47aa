"""Call back when the job has imported torch. It is never imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _AfterImport(MetaPathFinder):
    """Finds one module like everybody else would, and notes when it has been executed."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.then = then
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
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            self.then(module)

        loader.exec_module = exec_module


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call `then(module)` once `name` is imported; now, if it already is."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
        return
    sys.meta_path.insert(0, _AfterImport(name, then))
