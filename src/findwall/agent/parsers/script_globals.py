"""Globals of a script that it lets be set by `--name=value`, as nanoGPT does: read from the file itself.

Such a script runs over `sys.argv` and `globals()`, in its own text or in a file that it executes. What it
assigns before that are its options, and the comments behind them are their help.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import ModuleType

from findwall.agent.parsers.declared_options import LONGEST_HELP, plain
from findwall.agent.secrets import mask_text
from findwall.model.switches.program_options import Option

LARGEST = 1_000_000  # bytes of a script that is read. Chosen by hand.
_TYPES = (int, float, bool, str)


def of_script(main: ModuleType, typed: Sequence[str]) -> list[Option]:
    """`typed`: each word that names a global has its value behind an equals sign."""
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or any(not word.startswith("--") for word in typed if "=" in word):
        return []
    source = _read(Path(file))
    if "globals()" not in source and "exec(" not in source:
        return []
    body = ast.parse(source).body
    at = next((number for number, node in enumerate(body) if _sets_globals(node, Path(file))), None)
    if at is None:
        return []
    comments = _comments(source)
    found = {}
    for node in body[:at]:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _names(node):
                if (one := _option(main, name, node, comments)) is not None:
                    found[name] = one
    return list(found.values())


def _read(path: Path) -> str:
    if path.stat().st_size > LARGEST:
        return ""
    return path.read_text(errors="replace")


def _sets_globals(node: ast.stmt, file: Path) -> bool:
    """A loop over the words that sets globals, or the execution of a file that holds one."""
    if isinstance(node, ast.For):
        return _holds_both(ast.unparse(node))
    call = node.value if isinstance(node, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "exec"):
        return False
    named = (one.value for one in ast.walk(call) if isinstance(one, ast.Constant))
    for name in named:
        if isinstance(name, str) and name.endswith(".py"):
            for path in (Path.cwd() / name, file.parent / name):
                if path.is_file():
                    return _holds_both(_read(path))
    return False


def _holds_both(text: str) -> bool:
    return "argv" in text and "globals()" in text


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [one.id for one in targets if isinstance(one, ast.Name) and not one.id.startswith("_")]


def _option(main: ModuleType, name: str, node: ast.stmt, comments: dict[int, str]) -> Option | None:
    value = vars(main).get(name)
    if type(value) not in _TYPES:
        return None
    written = getattr(node, "value", None)
    return Option(
        flags=(f"--{name}",),
        dest=name,
        form="global",
        type=type(value).__name__,
        default=plain(written.value, name) if isinstance(written, ast.Constant) else None,
        value=plain(value, name),
        help=mask_text(comments.get(node.end_lineno or node.lineno, "")[:LONGEST_HELP]),
    )


def _comments(source: str) -> dict[int, str]:
    """Of each line, what stands behind its code."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found[token.start[0]] = token.string.lstrip("# ")
    return found
