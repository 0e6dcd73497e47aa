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
from findwall.patches.job_source import Function, Scope, Source

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
        if found is None and isinstance(what, ast.Name) and _is_global(source, scope, what):
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
    """Behind the last one above the call, out of the branches and loops that it alone is in."""
    above = [one for one in _made(source, scope, what) if (one.end_lineno or 0) < call.lineno]
    if not above:
        return None
    if isinstance(what, ast.Name) and _made_from_within(source, scope, what):
        raise NoPatch(_in_several(source, what))
    around = list(source.above(source.statement(call)))
    if _is_parameter(scope, what):  # it has a value without them as well
        blocks = [source.block(one) for one in around]
        return next((one for one in source.above(above[-1]) if any(one in each for each in blocks)), None)
    found = _behind(source, what, above)
    if found in around:
        raise NoPatch(UNNAMED)
    return found


def _in_class(source: Source, scope: Scope, what: ast.expr) -> ast.stmt | None:
    """`self.model`, from the method that sets it."""
    owner = source.class_of(scope)
    if owner is None or not isinstance(what, ast.Attribute) or not isinstance(what.value, ast.Name):
        return None
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or not scope.args.args:
        return None
    if scope.args.args[0].arg != what.value.id:
        return None
    methods = [one for one in owner.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return _in_one_of(source, what, [_made(source, one, what) for one in methods])


def _in_module(source: Source, what: ast.Name, spots: tuple[Spot, ...]) -> ast.stmt | None:
    """At the top of the file, above the line that led here, or in the function that sets it for all."""
    until = [one.line for one in spots if one.function == "<module>" and one.file == spots[0].file]
    made = [one for one in _made(source, source.tree, what) if one.lineno < (until[0] if until else inf)]
    return _in_one_of(source, what, [made, *_made_from_within(source, source.tree, what)])


def _in_one_of(source: Source, what: ast.expr, made: list[list[ast.stmt]]) -> ast.stmt | None:
    """Which of several functions comes last is not known."""
    found = [one for one in made if one]
    if len(found) > 1:
        raise NoPatch(_in_several(source, what))
    return _behind(source, what, found[0]) if found else None


def _in_several(source: Source, what: ast.expr) -> str:
    return f"`{source.code(what)}` is set in more than one function"


def _behind(source: Source, what: ast.expr, made: list[ast.stmt]) -> ast.stmt:
    """The last statement of the block that all of them are in: it comes as often as the model is made."""
    outsides = [set(source.above(one)) for one in made]
    together = (
        one for one in source.above(made[-1]) if all(set(source.block(one)) & out for out in outsides)
    )
    found = next((one for one in together if source.has_own_lines(one, one)), made[-1])
    wanted = ast.dump(_loaded(what))
    if isinstance(found, ast.If) and any(ast.dump(one) == wanted for one in ast.walk(found.test)):
        raise NoPatch(f"line {found.lineno} makes `{source.code(what)}` only where it is not made yet")
    return found


def _made_from_within(source: Source, scope: Scope, what: ast.Name) -> list[list[ast.stmt]]:
    """Of functions inside that set a name of this scope: `global`, `nonlocal`."""
    kind = ast.Global if isinstance(scope, ast.Module) else ast.Nonlocal
    said = [node for node in ast.walk(scope) if isinstance(node, kind) and what.id in node.names]
    inside = [one for one in dict.fromkeys(map(source.scope, said)) if one is not scope]
    return [made for made in (_made(source, one, what) for one in inside) if made]


def _made(source: Source, scope: Scope, what: ast.expr) -> list[ast.stmt]:
    """Those that bind it to more than a constant, which stands there until it is made: `model = None`."""
    return [one for one, value in _assigned(source, scope, what) if not isinstance(value, ast.Constant)]


def _assigned(source: Source, scope: Scope, what: ast.expr) -> list[tuple[ast.stmt, ast.expr]]:
    """Statements of a scope that bind this name or attribute, from top to bottom, and what to."""
    wanted = ast.dump(_loaded(what))
    found: list[tuple[ast.stmt, ast.expr]] = []
    for node in ast.walk(scope):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or source.scope(node) is not scope:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None:
            bound = (pair for one in targets for pair in _bound(one, node.value))
            found += [(node, value) for name, value in bound if ast.dump(_loaded(name)) == wanted]
    return sorted(found, key=lambda one: one[0].lineno)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each name of an assignment, with what it is bound to where that is written apart."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    if len(values) != len(target.elts):
        values = [value] * len(target.elts)
    yield from zip(target.elts, values, strict=True)


def _loaded(node: ast.expr) -> ast.expr:
    """The same, whether it is read or set."""
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(_loaded(node.value), node.attr, ast.Load())
    return node


def _is_global(source: Source, scope: Scope, what: ast.Name) -> bool:
    if isinstance(scope, ast.Module):
        return True
    said = any(isinstance(node, ast.Global) and what.id in node.names for node in ast.walk(scope))
    own = _is_parameter(scope, what) or (bool(_assigned(source, scope, what)) and not said)
    return not own and isinstance(source.scope(scope), ast.Module)


def _is_parameter(scope: Scope, what: ast.expr) -> bool:
    return isinstance(what, ast.Name) and what.id in _parameters(scope)


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
