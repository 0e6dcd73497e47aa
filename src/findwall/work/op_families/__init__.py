"""FLOPs and bytes of ops: one file a family, found here by its `FAMILY`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import msgspec

from findwall.work.op_arguments import Arguments, Work

# Whose short names mean what torch's mean.
TORCH_LIKE = (
    "aten",
    "prims",
    "flash_attn",
    "flash_attn_2_cuda",
    "flash_attn_3",
    "xformers",
    "torch_attn",
    "aiter",
)
Model = Callable[[str, Arguments], Work | None]


class Family(msgspec.Struct, frozen=True):
    """One family, declared at the end of its file: torch's ops by their short names, and others by a test."""

    models: dict[str, Model] = {}
    others: Callable[[str, str], bool] | None = None  # of a namespace and a name: they are this family's
    work: Callable[[str, str, Arguments], Work | None] | None = None  # of those


@cache
def all_families() -> tuple[Family, ...]:
    """By the names of their files."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").FAMILY for name in names)


@cache
def models() -> dict[str, Model]:
    """Of torch's ops, by their short names: no two families have the same."""
    return {name: model for family in all_families() for name, model in family.models.items()}
