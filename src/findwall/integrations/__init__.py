"""Callbacks for those who want them; unmodified trainers need none.

`from findwall.integrations import FindwallCallback` is the callback of the trainer that is there: of the one
that was imported before, else of those that are installed. Where both are, one class serves both.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# The module of each callback, and the packages whose trainer it is for.
TRAINERS = {"lightning": ("lightning", "pytorch_lightning"), "huggingface": ("transformers",)}
LIGHTNING_ARGUMENTS = 2  # the trainer and its module


def __getattr__(name: str) -> Any:
    if name != "FindwallCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _those(lambda package: sys.modules.get(package) is not None) or _those(_is_installed)
    if not found:
        raise ImportError(
            "FindwallCallback needs the trainer it is for: neither transformers nor lightning is installed. "
            "Measure any other loop with `with findwall.measure() as m: ... m.step()`."
        )
    classes = [import_module(f"{__name__}.{module}").FindwallCallback for module in found]
    return classes[0] if len(classes) == 1 else _serving_both(*classes)


def _those(is_there: Any) -> list[str]:
    return [module for module, packages in TRAINERS.items() if any(map(is_there, packages))]


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # broken, or told not to be there
        return False


def _serving_both(lightning: type, huggingface: type) -> type:
    def on_train_end(self: Any, *args: Any, **kwargs: Any) -> None:
        """The one name that both trainers call, each with its own arguments."""
        serving: Any = lightning if len(args) == LIGHTNING_ARGUMENTS else huggingface
        serving.on_train_end(self, *args, **kwargs)

    return type("FindwallCallback", (lightning, huggingface), {"on_train_end": on_train_end})
