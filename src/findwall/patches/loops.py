"""The loops around a step, and what counts its turns."""

from __future__ import annotations

import ast

from findwall.patches import NoPatch
from findwall.patches.source import Source


def loops_around(source: Source, step: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """The innermost and the outermost one in the same function."""
    loops = [one for one in source.above(step) if isinstance(one, (ast.For, ast.While))]
    if not loops:
        raise NoPatch("the step is in no loop of its function")
    return loops[0], loops[-1]


def counted_by(loop: ast.stmt) -> str:
    """The name that holds the number of the turn: of `enumerate` or `range`."""
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name):
        target = loop.target
        if loop.iter.func.id == "enumerate" and isinstance(target, (ast.Tuple, ast.List)):
            target = target.elts[0]
        elif loop.iter.func.id != "range":
            raise NoPatch(NO_COUNTER)
        if isinstance(target, ast.Name):
            return target.id
    raise NoPatch(NO_COUNTER)


NO_COUNTER = "the loop does not count its steps"
