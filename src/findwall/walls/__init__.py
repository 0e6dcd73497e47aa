"""One file a cause of a wall. The catalogue names them; here their files and pages are found."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from types import ModuleType

from findwall.model.catalogue import WALL_OF


@cache
def cause_modules() -> dict[str, ModuleType]:
    """The file of each cause, by its id, in the catalogue's order."""
    files = {info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__)}
    return {cause: _module(cause) for cause in WALL_OF if cause in files}


def page(cause: str) -> str:
    """The page of a cause: its file's docstring. KeyError where there is no such cause."""
    if cause not in WALL_OF:
        raise KeyError(cause)
    return inspect.getdoc(_module(cause)) or ""


def _module(cause: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{cause.replace('-', '_')}")
