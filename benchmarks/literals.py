"""The numbers of a piece of code: every literal but 0, 1 and -1, with its name, its place and what its
neighbours in the syntax tree say of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Number(NamedTuple):
    """One number, as it stands in the tree."""

    module: str  # below src/findwall
    name: str  # of the constant; or `function:literal`, `function(parameter)`, or the path in a data file
    place: str  # constant, compared, default, expression or file
    value: float
    line: int
    column: int = 0
    harmless: str = ""  # the class that the way it is written gives it

    @property
    def room(self) -> str:
        return self.module.split("/")[0] if "/" in self.module else "."


# -- finding them -----------------------------------------------------------------------------------------

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
    ast.LShift: lambda a, b: a << b,
    ast.BitOr: lambda a, b: a | b,
}


def folded(node: ast.AST) -> float | None:
    """The value of an expression of literals alone; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = folded(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = folded(node.left), folded(node.right)
        return None if left is None or right is None else float_or_int(node.op, left, right)
    return None


def float_or_int(operator: ast.operator, left: float, right: float) -> float:
    value: float = _OPERATORS[type(operator)](left, right)
    return value


def numbers_in(text: str, module: str) -> Iterator[Number]:
    """The numbers of a module's text."""
    yield from _below(ast.parse(text), (), module)


def _below(node: ast.AST, above: tuple[ast.AST, ...], module: str) -> Iterator[Number]:
    value = folded(node)
    if value is None:
        for child in ast.iter_child_nodes(node):
            yield from _below(child, (*above, node), module)
    elif value not in (0, 1, -1):
        place, name = _placed(node, above, value)
        yield Number(module, name, place, value, node.lineno, node.col_offset, harmless(node, above))  # type: ignore[attr-defined]


def _placed(node: ast.AST, above: tuple[ast.AST, ...], value: float) -> tuple[str, str]:
    """Where a number stands, and what it is called there."""
    scope = ".".join(one.name for one in above if isinstance(one, Scope))
    arguments = next((one for one in above if isinstance(one, ast.arguments)), None)
    if arguments is not None:
        return "default", f"{scope}({_parameter(arguments, above[above.index(arguments) + 1 :], node)})"
    statement = next(one for one in reversed(above) if isinstance(one, ast.stmt))
    if not any(isinstance(one, FUNCTIONS) for one in above) and (name := _target(statement, above, node)):
        return "constant", f"{scope}.{name}" if scope else name
    compared = any(isinstance(one, ast.Compare) or _bounds(one) for one in above)
    return "compared" if compared else "expression", f"{scope}:{value!r}"


def _bounds(node: ast.AST) -> bool:
    """Whether it is a call that keeps a value within bounds, or chooses between two."""
    return isinstance(node, ast.Call) and _last_name(node.func) in (
        *("where", "clip", "minimum", "maximum", "min", "max", "select"),
    )


def _target(statement: ast.AST, above: tuple[ast.AST, ...], node: ast.AST) -> str:
    """The name that a statement gives to the number: of `A, B = 2, 3` the one of the two."""
    if isinstance(statement, ast.AnnAssign | ast.AugAssign):
        return ast.unparse(statement.target)
    if not isinstance(statement, ast.Assign):
        return ""
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        inside = {id(one) for one in (*above, node)}
        at = next(at for at, one in enumerate(value.elts) if id(one) in inside)
        target = target.elts[at]
    return ast.unparse(target)


def _parameter(arguments: ast.arguments, below: tuple[ast.AST, ...], node: ast.AST) -> str:
    inside = {id(one) for one in (*below, node)}
    given = (
        [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) :] if arguments.defaults else []
    )
    pairs = [
        *zip(given, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next(one.arg for one, default in pairs if id(default) in inside)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# -- what the way of writing says -------------------------------------------------------------------------

UNITS = (1e3, 1e6, 1e9, 1e12, 1e-3, 1e-6, 1e-9, 1e-12, 1024, 1024**2, 1024**3)
ARGUMENTS = ("tensor", "number", "numbers", "flag", "flags", "text", "group", "_text", "_tensor", "tensors")
DIMENSIONS = ("dims", "shape", "operands", "arguments", "args", "types")


def harmless(node: ast.AST, above: tuple[ast.AST, ...]) -> str:
    """The class of a number that cannot decide where it stands, by its neighbours in the tree; else ''."""
    parent = above[-1]
    begin = max((at for at, one in enumerate(above) if isinstance(one, ast.stmt)), default=0)
    expression = above[begin + 1 :]
    if any(isinstance(one, ast.FormattedValue) for one in expression):
        return "shown"
    if _is_index(parent, above) or _is_argument(parent) or any(_is_enum(one) for one in above):
        return "format"
    compare = next((one for one in reversed(expression) if isinstance(one, ast.Compare)), None)
    if compare is not None:
        return _compared_harmlessly(node, compare)
    in_function = any(isinstance(one, FUNCTIONS) for one in above)
    return _arithmetic(node, parent) if in_function and isinstance(parent, ast.BinOp) else ""


def _is_enum(node: ast.AST) -> bool:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return any(re.search("Enum|Flag", _last_name(base)) for base in bases)


def _is_index(parent: ast.AST, above: tuple[ast.AST, ...]) -> bool:
    """`found[2]`, `table[:, 2]`: which one; `dims[-2:]`, `edges[::2]`: which axes, and every other one."""
    if isinstance(parent, ast.Slice) and isinstance(above[-2], ast.Subscript):
        return parent.step is not None or _last_name(above[-2].value) in DIMENSIONS
    return isinstance(above[-2] if isinstance(parent, ast.Tuple) else parent, ast.Subscript)


def _is_argument(parent: ast.AST) -> bool:
    """`arguments.flag(7)`: the place of an argument."""
    return isinstance(parent, ast.Call) and _last_name(parent.func) in ARGUMENTS


def _compared_harmlessly(node: ast.AST, compare: ast.Compare) -> str:
    """`len(dims) != 4` asks for a kind of tensor, `len(found) < 2` whether there is a second one."""
    sides = [compare.left, *compare.comparators]
    if any(_last_name(side) in ("version_info", "capability") for side in sides):
        return "format"
    calls = [side for side in sides if isinstance(side, ast.Call) and _last_name(side.func) in ("len", "dim")]
    listed = [one for side in sides if isinstance(side, ast.Tuple) for one in side.elts]
    if not calls or node not in (*sides, *listed):
        return ""
    asked = calls[0].args[0] if calls[0].args else calls[0].func
    if _last_name(asked) in (*DIMENSIONS, "dim"):
        return "format"
    return "numerics" if folded(node) == 2 else ""  # fewer than two have neither order nor spread


def _arithmetic(node: ast.AST, parent: ast.BinOp) -> str:
    """`ns / 1e9` converts; a half, a square and every other one are what a formula asks for."""
    value, operator = folded(node), parent.op
    scales = isinstance(operator, ast.Mult | ast.Div)
    if scales and (value in UNITS or (value == 100 and isinstance(operator, ast.Div))):
        return "unit"
    halves = isinstance(operator, ast.Div | ast.FloorDiv | ast.Pow | ast.Mod) and parent.right is node
    return "numerics" if value == 2 and halves else ""
