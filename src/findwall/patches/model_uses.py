"""What a job does with a model beside calling it, where another object under its name would break."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from findwall.patches.job_source import Function, Scope, Source
from findwall.patches.model_names import Named

_BY_NAME = ("state_dict", "named_", "children", "get_submodule", "get_parameter")  # parts of attributes
_LOOKS = ("print", "id")  # take it as whatever it is
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def needs_itself(model: Named) -> int | None:
    """The line that wants the model and nothing that stands around it: it goes over the layers, takes one of
    them, wants the names of weights, or hands it to what may do so. None: no line of this file does."""
    source = model.edits.source
    scope = source.scope(model.statement)
    last = model.statement.end_lineno or model.statement.lineno
    uses = [
        one
        for one in _uses(source, scope, model.name)
        if source.scope(one) is not scope or one.lineno > last  # above it the name is not given yet
    ]
    return _needed(source, uses, set())


def _needed(source: Source, uses: list[ast.expr], followed: set[tuple[str, str]]) -> int | None:
    for use in uses:
        parent = source.parents[use]
        if isinstance(parent, ast.keyword):
            parent = source.parents[parent]
        if isinstance(parent, ast.Attribute):
            if any(one in parent.attr for one in _BY_NAME):
                return use.lineno
        elif isinstance(parent, ast.Call) and parent.func is not use:
            if isinstance(parent.func, ast.Name) and parent.func.id in _LOOKS:
                continue
            function, name = _parameter(source, parent, use)
            if function is None:
                return use.lineno
            if (function.name, name) in followed:
                continue
            followed.add((function.name, name))
            if (line := _needed(source, _uses(source, function, name), followed)) is not None:
                return line
        elif not isinstance(parent, ast.Call) and not _is_compared(parent):
            return use.lineno
    return None


def _is_compared(node: ast.AST) -> bool:
    """`model is None`"""
    return isinstance(node, ast.Compare) and all(isinstance(one, (ast.Is, ast.IsNot)) for one in node.ops)


def _uses(source: Source, scope: Scope, name: str) -> list[ast.expr]:
    """Where a name of this scope is read; an attribute (`self.model`) in all of the file."""
    found: list[ast.expr] = []
    for node in ast.walk(scope if name.isidentifier() else source.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if source.code(node) != name:
            continue
        if not isinstance(node, ast.Name) or _owner(source, node, scope) is scope:
            found.append(node)
    return sorted(found, key=lambda one: one.lineno)


def _owner(source: Source, node: ast.Name, until: Scope) -> Scope:
    """Whose name it is: of the innermost function around it that has one of its own."""
    scope = source.scope(node)
    while scope is not until and node.id not in _own(source, scope):
        scope = source.scope(scope)
    return scope


def _own(source: Source, scope: Scope) -> Iterator[str]:
    """Names that a function takes or sets."""
    if isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
        yield from (one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg))
    shared = {
        name for one in ast.walk(scope) if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names
    }
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and source.scope(node) is scope:
            yield from {node.id} - shared


def _parameter(source: Source, call: ast.Call, given: ast.expr) -> tuple[Function | None, str]:
    """The function of this file that a call hands it to, and what it is called in there."""
    wanted = call.func.id if isinstance(call.func, ast.Name) else ""
    found = [one for one in source.tree.body if isinstance(one, _FUNCTIONS) and one.name == wanted]
    if len(found) != 1:
        return None, ""
    names = [one.arg for one in (*found[0].args.posonlyargs, *found[0].args.args)]
    keyword = next((one.arg for one in call.keywords if one.value is given), None)
    if keyword is not None:
        takes = keyword in (*names, *(one.arg for one in found[0].args.kwonlyargs))
        return (found[0], keyword) if takes else (None, "")
    at = call.args.index(given) if given in call.args else len(names)
    if at >= len(names) or any(isinstance(one, ast.Starred) for one in call.args[:at]):
        return None, ""
    return found[0], names[at]
