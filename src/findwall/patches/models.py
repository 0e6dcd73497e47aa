"""Where a job gives a model its name, from where it calls it: what is done to a model once belongs there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import inf

import msgspec

from findwall.model.applied import Place, Spot
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.edits import FileEdits
from findwall.patches.source import Function, Scope, Source

UNNAMED = "the job's code does not show where the model is made"


class Named(msgspec.Struct):
    """The last statement that gives a model its name before it is called."""

    edits: FileEdits
    statement: ast.stmt
    name: str  # `model`, `self.model`

    def then(self, *lines: str) -> None:
        self.edits.insert_after(self.statement, *lines)


def named(editor: Editor, place: Place) -> Named:
    """A model that is a parameter is followed to the function that passes it."""
    if place.library:
        raise NoPatch(f"{place.library} calls the model, not the job's own code")
    call = editor.call(place.spots[0])
    what: ast.expr = call.func
    for depth, spot in enumerate(place.spots):
        edits = editor.file(spot.file)
        source = edits.source
        scope = _scope(source, call)
        _refuse_other_bindings(source, scope, what)
        found = _in_scope(source, scope, what, call) or _in_class(source, scope, what)
        if found is None and isinstance(what, ast.Name) and _is_global(source, scope, what.id):
            found = _in_module(source, what, place.spots[depth:])
        if found is not None:
            return Named(edits, found, source.code(what))
        if depth + 1 == len(place.spots):
            break
        call, what = _passed(editor, scope, what, place.spots[depth + 1])
    raise NoPatch(UNNAMED)


def _scope(source: Source, node: ast.AST) -> ast.Module | Function:
    scope = source.scope(node)
    if isinstance(scope, (ast.Lambda, ast.ClassDef)):
        raise NoPatch(UNNAMED)
    return scope


def _refuse_other_bindings(source: Source, scope: Scope, what: ast.expr) -> None:
    """A name that a loop, a `with` or a comprehension gives: what it stands for is made elsewhere."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        parent = source.parents[node]
        if isinstance(parent, (ast.Tuple, ast.List)):
            parent = source.parents[parent]
        if not isinstance(parent, (ast.Assign, ast.AnnAssign)) and node.id == getattr(what, "id", None):
            raise NoPatch(UNNAMED)


def _in_scope(source: Source, scope: Scope, what: ast.expr, call: ast.Call) -> ast.stmt | None:
    """The last one above the call, out of the branches and loops that it alone is in."""
    above = [one for one in _assigned(source, scope, what) if (one.end_lineno or 0) < call.lineno]
    if not above:
        return None
    around = list(source.above(source.statement(call)))
    blocks = [source.block(one) for one in around]
    for one in source.above(above[-1]):
        if any(one in block for block in blocks):
            return one
    return None


def _in_class(source: Source, scope: Scope, what: ast.expr) -> ast.stmt | None:
    """`self.model`, from the method that sets it."""
    owner = source.class_of(scope)
    if owner is None or not isinstance(what, ast.Attribute) or not isinstance(what.value, ast.Name):
        return None
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or not scope.args.args:
        return None
    if scope.args.args[0].arg != what.value.id:
        return None
    methods = [one for one in owner.body if isinstance(one, ast.FunctionDef)]
    made = {one.name: list(_assigned(source, one, what)) for one in methods}
    made = {name: found for name, found in made.items() if found}
    first = made.get("__init__") or (next(iter(made.values())) if len(made) == 1 else None)
    return list(source.above(first[-1]))[-1] if first else None


def _in_module(source: Source, what: ast.expr, spots: tuple[Spot, ...]) -> ast.stmt | None:
    """At the top of the file, above the line that led here."""
    until = [one.line for one in spots if one.function == "<module>"]
    made = [one for one in _assigned(source, source.tree, what) if one.lineno < (until[0] if until else inf)]
    return list(source.above(made[-1]))[-1] if made else None


def _assigned(source: Source, scope: Scope, what: ast.expr) -> Iterator[ast.stmt]:
    """Statements of a scope that bind this name or attribute, from top to bottom."""
    wanted = ast.dump(_loaded(what))
    found = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        each = [
            part
            for one in targets
            for part in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])
        ]
        if any(ast.dump(_loaded(one)) == wanted for one in each) and source.scope(node) is scope:
            found.append(node)
    return iter(sorted(found, key=lambda one: one.lineno))


def _loaded(node: ast.expr) -> ast.expr:
    """The same, whether it is read or set."""
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(_loaded(node.value), node.attr, ast.Load())
    return node


def _is_global(source: Source, scope: Scope, name: str) -> bool:
    if isinstance(scope, ast.Module):
        return False  # looked at already
    return name not in _parameters(scope) and isinstance(source.scope(scope), ast.Module)


def _parameters(scope: Scope) -> list[str]:
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    return [one.arg for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)]


def _passed(editor: Editor, scope: Scope, what: ast.expr, spot: Spot) -> tuple[ast.Call, ast.expr]:
    """What the caller passes for a parameter."""
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(what, ast.Name):
        raise NoPatch(UNNAMED)
    call = editor.call(spot)
    callee = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    source = editor.file(spot.file).source
    if callee != scope.name and not source.resolved(call.func).endswith(f".{scope.name}"):
        raise NoPatch(UNNAMED)
    by_name = {one.arg: one.value for one in call.keywords if one.arg}
    if what.id in by_name:
        return call, by_name[what.id]
    names = [one.arg for one in (*scope.args.posonlyargs, *scope.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    at = names.index(what.id) if what.id in names else len(call.args)
    if at >= len(call.args) or any(isinstance(one, ast.Starred) for one in call.args[: at + 1]):
        raise NoPatch(UNNAMED)
    return call, call.args[at]
