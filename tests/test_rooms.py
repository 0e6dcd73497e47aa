"""The house: rooms that are not too full, names that are used once, and imports that stay short."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import findwall
from findwall.fixes import fix_modules

PACKAGE = Path(findwall.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted({path.parent for path in FILES})
MOST_FILES, MOST_FOLDERS = 25, 8
MOST_IMPORTED = (
    69  # by a fix, in all: half of what bf16-autocast imported before there were rooms, memory, and ranks
)


def module(path: Path) -> str:
    parts = ("findwall", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


@cache
def imported(name: str) -> frozenset[str]:
    """The modules of ours that one names, in its functions too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & MODULES.keys() or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return frozenset(found)


def closure(name: str) -> set[str]:
    reached, new = set(), {name}
    while new:
        reached |= new
        new = {one for name in new for one in imported(name)} - reached
    return reached


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_is_not_too_full(room: Path) -> None:
    assert len(list(room.glob("*.py"))) <= MOST_FILES
    folders = [path for path in room.iterdir() if (path / "__init__.py").exists()]
    assert len(folders) <= MOST_FOLDERS or room == PACKAGE


def test_no_file_name_is_used_twice() -> None:
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_a_room_says_what_is_in_it() -> None:
    for room in ROOMS:
        if (room / "__init__.py").exists():
            assert ast.get_docstring(ast.parse((room / "__init__.py").read_text())), room


@pytest.mark.parametrize("fix", sorted(fix_modules()))
def test_a_fix_imports_little(fix: str) -> None:
    assert len(closure(fix_modules()[fix].__name__)) <= MOST_IMPORTED
