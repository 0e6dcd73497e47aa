"""One file a fix. A file is one if it says which causes it moves (`MOVES`); here they are found."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType


def fix_modules() -> dict[str, ModuleType]:
    """The file of each fix, by its id, in alphabetical order."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    modules = {name.replace("_", "-"): importlib.import_module(f"{__name__}.{name}") for name in names}
    return {fix: module for fix, module in modules.items() if hasattr(module, "MOVES")}


def page(fix: str) -> str:
    """The page of a fix: its file's docstring. KeyError where there is no such fix."""
    return inspect.getdoc(fix_modules()[fix]) or ""
