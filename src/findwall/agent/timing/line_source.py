"""What the source tells of a line on which the host stood: a library's routine that it calls, whether a loop
within the step holds it, and whether a step comes to it once. No text is kept, only a routine's public name.

A loop that holds the point at which steps end runs over the steps: it is none within them.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 1_000_000  # of a file
ROUTINES = frozenset(
    ("sort", "argsort", "lexsort", "partition", "argpartition", "unique", "histogram", "bincount", "digitize")
) | {"where", "nonzero", "searchsorted", "cumsum", "meshgrid", "convolve", "take", "concatenate", "stack"}
DRAWS = frozenset(
    ("choice", "permutation", "permuted", "shuffle", "sample", "integers", "randint", "random", "uniform")
) | {"normal", "standard_normal", "rand", "randn", "choices", "gauss", "poisson", "binomial", "exponential"}
GENERATORS = frozenset(("numpy.random.default_rng", "numpy.random.RandomState", "random.Random"))
LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Stand(NamedTuple):
    """A line of the person's own code that is running."""

    file: str
    line: int
    function: str = ""
    called_directly: bool = True  # by the line that led here, with no library between


def routine_at(file: str, line: int) -> str:
    """ "numpy.random.choice"; empty where the line calls no such routine, or nobody knows its text."""
    tree = _tree(file)
    if tree is None:
        return ""
    aliases = _aliases(file)
    for call in _at(tree, line, (ast.Call,)):
        found = _routine(call.func, aliases) if isinstance(call, ast.Call) else ""
        if found:
            return found
    return ""


def is_looped(way: Iterable[Stand], ends: Iterable[Stand] = ()) -> bool | None:
    """Whether a loop within the step holds one of the lines that led here; None where nobody knows their
    text. `ends`: the lines that are running where a step ends."""
    found: bool | None = None
    for stand in way:
        tree = _tree(stand.file)
        if tree is None:
            return None
        found = bool(found) or any(not _is_over_steps(one, stand.file, ends) for one in _loops(tree, stand))
    return found


def comes_once(way: Sequence[Stand], ends: Sequence[Stand]) -> bool | None:
    """Whether a step comes to this line once: neither it nor any line that led here, each of which calls the
    function by its name, stands in a loop within the step. None where the source does not tell."""
    over = _over_steps(ends)
    for stand, before in zip(way, (*way[1:], None), strict=True):
        looped = is_looped([stand], ends)
        if looped or looped is None:
            return None if looped is None else False
        lines = over.get((stand.file, stand.function))
        if lines is not None:
            return True if stand.line in lines else None
        if before is None or not stand.called_directly or not _names(before, stand.function):
            return None
    return None


def _over_steps(ends: Sequence[Stand]) -> dict[tuple[str, str], range]:
    """The functions that are running where a step ends, up to the one that loops over steps, and which of
    their lines a step goes through; none where no loop of the person's own is around."""
    found: dict[tuple[str, str], range] = {}
    for stand in ends:
        tree = _tree(stand.file)
        loops = _loops(tree, stand) if tree is not None else []
        if loops:
            first, last = _lines(loops[-1])
            return found | {(stand.file, stand.function): range(first, last + 1)}
        found[stand.file, stand.function] = range(1, sys.maxsize)
    return {}


def _names(stand: Stand, function: str) -> bool:
    """Whether a line calls a function by its name."""
    tree = _tree(stand.file)
    calls = _at(tree, stand.line, (ast.Call,)) if tree is not None else []
    called = [one.func for one in calls if isinstance(one, ast.Call)]
    return any(getattr(one, "attr", getattr(one, "id", "")) == function for one in called)


def _loops(tree: ast.AST, stand: Stand) -> list[ast.AST]:
    """The loops of a function that hold one of its lines."""
    inside = _at(tree, stand.line, (*LOOPS, *FUNCTIONS))
    functions = [at for at, one in enumerate(inside) if isinstance(one, FUNCTIONS)]
    return inside[functions[-1] + 1 if functions else 0 :]


def _is_over_steps(loop: ast.AST, file: str, ends: Iterable[Stand]) -> bool:
    """Whether steps end in a loop, or it runs the backward pass."""
    first, last = _lines(loop)
    return _runs_backward(loop) or any(one.file == file and first <= one.line <= last for one in ends)


def _at(tree: ast.AST, line: int, kinds: tuple[type[ast.AST], ...]) -> list[ast.AST]:
    """Nodes of some kinds that hold a line, the outermost first."""
    found, below = [], [tree]
    for node in below:
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
            if first is None or last is None or first <= line <= last:
                below.append(child)
                if isinstance(child, kinds):
                    found.append(child)
    return found


def _lines(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)


def _runs_backward(loop: ast.AST) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in ast.walk(loop))


def _routine(func: ast.AST, aliases: dict[str, str]) -> str:
    dotted = _dotted(func)
    root, _, rest = dotted.partition(".")
    name = f"{aliases[root]}.{rest}".rstrip(".") if root in aliases else ""
    module, _, last = name.rpartition(".")
    if module in ("numpy.random", "random", *GENERATORS) and last in DRAWS:
        return name
    return name if module == "numpy" and last in ROUTINES else ""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _dotted(node.value)
        return f"{above}.{node.attr}" if above else ""
    return ""


def forget() -> None:
    """What was read is not kept in the job's memory."""
    _tree.cache_clear()
    _aliases.cache_clear()


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        if Path(file).stat().st_size > MOST_BYTES:
            return None
        with tokenize.open(file) as text:
            return ast.parse(text.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@cache
def _aliases(file: str) -> dict[str, str]:
    """What names stand for: modules, their functions, and generators made of them."""
    tree, found = _tree(file), {}
    nodes = list(ast.walk(tree)) if tree is not None else []
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            root, _, rest = _dotted(node.value.func).partition(".")
            made = f"{found.get(root, '')}.{rest}".rstrip(".")
            if made in GENERATORS:
                found |= {name: made for one in node.targets if (name := _dotted(one)) and "." not in name}
    return found
