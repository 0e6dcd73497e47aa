"""One number of the package at another value: where it is read, and how it is put there in a running process.

A constant is assigned anew, with every name that was imported or computed from it; a literal in a function is
put into the code of that function, wherever the function object lives by now. Nothing is taken back: whoever
does this does it in a child process.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from count_numbers import SOURCE
from literals import FUNCTIONS, Number, folded

Name = tuple[str, str]  # a module below src/findwall, and a name in it


class Site(NamedTuple):
    """Lines of a file in which a number is read: one of them is run before it is."""

    file: str
    first: int
    last: int


class UntriedError(Exception):
    """The number is fixed when its module is read: a default, a field of a class."""


class Package:
    """The syntax trees of some rooms, and who takes a name from whom."""

    def __init__(self, rooms: tuple[str, ...]) -> None:
        paths = [path for room in rooms for path in sorted((SOURCE / room).rglob("*.py"))]
        self.trees = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in paths}
        self.taken: dict[Name, list[Name]] = {}
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("findwall"):
                    for one in node.names:
                        source = (_path_of(node.module or ""), one.name)
                        self.taken.setdefault(source, []).append((module, one.asname or one.name))

    def load(self) -> None:
        """All of them imported, so that nothing is read after a number was put."""
        for module in self.trees:
            _imported(module)

    def derived(self, module: str, name: str) -> list[Name]:
        """A name and all that are bound to it or computed from it where a module is read, in that order."""
        found: dict[Name, None] = {(module, name): None}
        for at, own in _growing(found):
            for taken in self.taken.get((at, own), []):
                found.setdefault(taken)
            for statement in self.trees[at].body:
                if own in _read_in(statement):
                    found.update(dict.fromkeys((at, target) for target in _targets(statement)))
        return list(found)

    def sites(self, number: Number) -> list[Site]:
        """Where a number is read while a run is examined."""
        if number.place != "constant":
            return [_site(number.module, self._around(number))]
        by_name = [self._reading.get(one, []) for one in self.derived(number.module, number.name)]
        return [*(site for sites in by_name for site in sites), *self._reading.get(("", number.name), [])]

    @functools.cached_property
    def _reading(self) -> dict[Name, list[Site]]:
        """Where each name is read in functions: its own in a module, and any as an attribute of something."""
        found: dict[Name, list[Site]] = {}
        for module, tree in self.trees.items():
            for root in _roots_in_functions(tree):
                nodes = list(ast.walk(root))
                names = {(module, one.id) for one in nodes if isinstance(one, ast.Name)}
                for name in names | {("", one.attr) for one in nodes if isinstance(one, ast.Attribute)}:
                    found.setdefault(name, []).append(_site(module, root))
        return found

    def is_baked(self, number: Number) -> bool:
        """Whether a default or a field of a class took its value when its module was read: that one stays."""
        names = self.derived(number.module, number.name) if number.place == "constant" else []
        return any(name in _baked_in(self.trees[module]) for module, name in names)

    def put(self, number: Number, value: float) -> None:
        """Give a number another value, in this process and for good."""
        in_class = number.place == "constant" and "." in number.name
        if in_class or number.place == "default":
            raise UntriedError(number.name)
        tree = self._with(number, value)
        if number.place != "constant":
            return _swap_code(tree, number.module)
        derived = self.derived(number.module, number.name)
        for module, name in (*derived, *derived):  # twice: one may be computed from two of the others
            self._assign(tree if module == number.module else self.trees[module], module, name)
        return None

    def _assign(self, tree: ast.Module, module: str, name: str) -> None:
        """Bind a name anew, by the statement that bound it when its module was read."""
        space = vars(_imported(module))
        statement = next((one for one in tree.body if name in _targets(one)), None)
        if statement is not None:
            exec(compile(ast.Module([statement], []), str(SOURCE / module), "exec"), space)
        for source, takers in self.taken.items():
            if statement is None and (module, name) in takers and source[0] in self.trees:
                space[name] = vars(_imported(source[0]))[source[1]]

    def _with(self, number: Number, value: float) -> ast.Module:
        """The module's tree with the number replaced."""
        tree = ast.parse((SOURCE / number.module).read_text())
        return ast.fix_missing_locations(_Replacing(number, value).visit(tree))

    def _around(self, number: Number) -> ast.AST:
        """The expression that a literal is part of."""
        roots = _roots_in_functions(self.trees[number.module])
        return min((one for one in roots if _holds(one, number)), key=lambda one: one.end_lineno - one.lineno)


class _Replacing(ast.NodeTransformer):
    def __init__(self, number: Number, value: float) -> None:
        self.number, self.value = number, value

    def visit(self, node: ast.AST) -> Any:
        at = (getattr(node, "lineno", 0), getattr(node, "col_offset", -1))
        if at == (self.number.line, self.number.column) and folded(node) == self.number.value:
            return ast.copy_location(ast.Constant(self.value), node)
        return self.generic_visit(node)


def _growing(found: dict[Name, None]) -> Iterator[Name]:
    """The keys of a dict that grows meanwhile, each once."""
    done: set[Name] = set()
    while len(done) < len(found):
        for one in [one for one in found if one not in done]:
            done.add(one)
            yield one


def _targets(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module binds to values."""
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _read_in(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module computes a value from."""
    if not _targets(statement):
        return set()
    return {
        one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }


def _roots_in_functions(tree: ast.Module) -> list[Any]:
    """The expressions of all statements in functions: the largest ones, with no statement in them."""
    functions = (one for one in ast.walk(tree) if isinstance(one, FUNCTIONS))
    statements = (
        one for function in functions for one in ast.walk(function) if isinstance(one, ast.stmt | ast.Lambda)
    )
    children = (child for one in statements for child in ast.iter_child_nodes(one))
    return list(
        {id(one): one for one in children if isinstance(one, ast.expr | ast.withitem | ast.keyword)}.values()
    )


def _baked_in(tree: ast.Module) -> set[str]:
    """Names that are read once, where a class or a function is defined."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fixed: list[Any] = [one.value for one in node.body if isinstance(one, ast.Assign | ast.AnnAssign)]
        elif isinstance(node, ast.FunctionDef):
            fixed = [*node.args.defaults, *node.args.kw_defaults, *node.decorator_list]
        else:
            continue
        found |= {one.id for root in fixed if root for one in ast.walk(root) if isinstance(one, ast.Name)}
    return found


def _holds(root: Any, number: Number) -> bool:
    return any(
        (getattr(one, "lineno", 0), getattr(one, "col_offset", -1)) == (number.line, number.column)
        for one in ast.walk(root)
    )


def _site(module: str, root: Any) -> Site:
    lines = [
        one
        for node in ast.walk(root)
        for one in (getattr(node, "lineno", None), getattr(node, "end_lineno", None))
        if one
    ]
    return Site(str(SOURCE / module), min(lines), max(lines))


def _path_of(dotted: str) -> str:
    path = "/".join(dotted.split(".")[1:])
    return f"{path}.py" if (SOURCE / f"{path}.py").exists() else f"{path}/__init__.py"


def _imported(module: str) -> ModuleType:
    parts = Path(module).with_suffix("").parts
    return importlib.import_module(".".join(("findwall", *(one for one in parts if one != "__init__"))))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _swap_code(tree: ast.Module, module: str) -> None:
    """Every function of a module, wherever it is kept, runs the code of another tree."""
    file = _imported(module).__file__ or ""
    new = {(one.co_qualname, one.co_firstlineno): one for one in _codes(compile(tree, file, "exec"))}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == file:
            one.__code__ = new[one.__code__.co_qualname, one.__code__.co_firstlineno]


def forget() -> None:
    """Empty what the package's functions remember of earlier calls."""
    for one in gc.get_objects():
        if isinstance(one, functools._lru_cache_wrapper) and one.__module__.startswith("findwall"):
            one.cache_clear()


def run_lines(sites: list[Site]) -> set[tuple[str, int]]:
    """Start to note which lines of these sites are run; the set that is returned fills up."""
    wanted: dict[str, set[int]] = {}
    for site in sites:
        wanted.setdefault(site.file, set()).update(range(site.first, site.last + 1))
    seen: set[tuple[str, int]] = set()

    @functools.cache
    def left(code: CodeType) -> set[int]:
        lines = wanted.get(code.co_filename, set())
        return {line for _, _, line in code.co_lines() if line in lines}

    def in_function(frame: Any, _event: str, _argument: Any) -> Any:
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        left(frame.f_code).discard(frame.f_lineno)
        return in_function

    sys.settrace(lambda frame, _event, _argument: in_function if left(frame.f_code) else None)
    return seen
