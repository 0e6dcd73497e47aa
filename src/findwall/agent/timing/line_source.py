"""What the source tells of a line on which the host stood: a library's routine that it calls, and whether a
loop within the step holds it. No text is kept, only the routine's public name."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path

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


def is_looped(places: Iterable[tuple[str, int]]) -> bool | None:
    """Whether a loop holds one of the lines that led here, but for that over the steps, which runs the
    backward pass too; None where nobody knows their text."""
    found: bool | None = None
    for file, line in places:
        tree = _tree(file)
        if tree is None:
            return None
        inside = _at(tree, line, (*LOOPS, *FUNCTIONS))
        functions = [at for at, one in enumerate(inside) if isinstance(one, FUNCTIONS)]
        loops = inside[functions[-1] + 1 if functions else 0 :]
        found = bool(found) or any(not _runs_backward(one) for one in loops)
    return found


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
