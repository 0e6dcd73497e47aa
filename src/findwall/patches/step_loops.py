"""The loops around a step, and a name to count its turns with."""

from __future__ import annotations

import ast
from itertools import chain, count

from findwall.patches import NoPatch
from findwall.patches.job_source import Source

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_AT_ONCE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def loops_around(source: Source, step: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """The innermost and the outermost one in the same function."""
    loops = [one for one in source.above(step) if isinstance(one, _LOOPS)]
    if not loops:
        raise NoPatch("the step is in no loop of its function")
    return loops[0], loops[-1]


def is_repeated(source: Source, call: ast.Call) -> bool:
    """Whether it is called in a loop of its function."""
    node: ast.AST = call
    while not isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside, node = node, source.parents[node]
        if isinstance(node, (*_LOOPS, *_AT_ONCE)) and inside is not getattr(node, "iter", None):
            return True
    return False


def unused(source: Source, *names: str) -> str:
    """The first of these names that stands for nothing in this file; the last one with a number if all do."""
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    numbered = (f"{names[-1]}_{number}" for number in count(2))
    return next(one for one in chain(names, numbered) if one not in used)
