"""Statements from a model's call to the backward pass, put under `with`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from findwall.model.applied import Place, Spot
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.job_source import LOOPS, Source, unused


class Lines(NamedTuple):
    """Of a file, those that were wrapped."""

    file: str
    lines: range


def under(editor: Editor, place: Place, header: str, behind: str = "") -> Lines:
    """Wrap what runs from this place until it ended; `{torch}` is torch as it is called there. What is
    wrapped. `behind`: what is put behind the call, where a statement is written anew."""
    if not place.until:
        return _alone(editor, place.spots[0], header)
    end = place.until[0]
    edits = editor.file(end.file)
    source = edits.source
    last_call = source.call_at(end)
    last = source.statement(last_call)
    scope = source.scope(last)
    for spot in place.spots:
        if spot.file != end.file:
            continue
        call = source.call_at(spot)
        first = source.statement(call)
        if source.scope(first) is not scope:
            continue
        if first is last:
            return _split(editor, end.file, last_call, call, header, behind)
        begin, stop = _common(source, first, last)
        block = source.block(begin)
        before = _last_that_computes(block[block.index(begin) : block.index(stop)])
        edits.wrap(begin, before, header.format(torch=edits.module("torch")))
        return Lines(end.file, range(begin.lineno, (before.end_lineno or before.lineno) + 1))
    raise NoPatch("the model's call and the backward pass are in different functions")


def _last_that_computes(statements: list[ast.stmt]) -> ast.stmt:
    """Gradients that are set to zero before the backward pass need no autocast."""
    while len(statements) > 1 and _zeroes(statements[-1]):
        statements = statements[:-1]
    return statements[-1]


def _zeroes(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"
    )


def _alone(editor: Editor, spot: Spot, header: str) -> Lines:
    """A call that nothing follows: its own statement."""
    edits = editor.file(spot.file)
    statement = edits.source.statement(edits.source.call_at(spot))
    if isinstance(statement, (*LOOPS, ast.With, ast.AsyncWith, ast.If, ast.Try)):
        raise NoPatch("the model is called in the head of a block")
    edits.wrap(statement, statement, header.format(torch=edits.module("torch")))
    return Lines(spot.file, range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))


def _common(source: Source, first: ast.stmt, last: ast.stmt) -> tuple[ast.stmt, ast.stmt]:
    """The neighbours in one block that hold them. A backward pass in a loop that the call is not in comes
    after some other call as well."""
    for stop in source.above(last):
        if isinstance(stop, LOOPS) and stop is not last:
            break
        block = source.block(stop)
        begin = next((one for one in source.above(first) if one in block), None)
        if begin is None:
            continue
        if block.index(begin) >= block.index(stop):
            break
        return begin, stop
    raise NoPatch("the model's call and the backward pass are not in one block")


def _split(editor: Editor, file: str, call: ast.Call, model: ast.Call, header: str, behind: str) -> Lines:
    """`model(x).sum().backward()` becomes two statements."""
    edits = editor.file(file)
    source = edits.source
    statement = source.statement(call)
    if (
        not isinstance(statement, ast.Expr)
        or statement.value is not call
        or not isinstance(call.func, ast.Attribute)
        or statement.end_lineno != statement.lineno
        or not source.has_own_lines(statement, statement)
    ):
        raise NoPatch("the model's call and the backward pass are in one statement")
    name = unused(source, "loss", "total_loss", "the_loss", "loss_of_step")
    unit = source.indent_unit
    top = header.format(torch=edits.module("torch"))
    loss, at = source.code(call.func.value), source.end(model) - source.start(call.func.value)
    edits.insert_before(statement, top, f"{unit}{name} = {loss[:at]}{behind}{loss[at:]}")
    edits.replace(call.func.value, name)
    return Lines(file, range(0))
