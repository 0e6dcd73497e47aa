"""Autocast around a model's calls and its loss, in the job's own lines."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from findwall.model.applied import Place, Spot
from findwall.patches import NoPatch
from findwall.patches.call_arguments import Setting, keyword_of
from findwall.patches.editor import Editor
from findwall.patches.edits import FileEdits
from findwall.patches.job_source import Source
from findwall.patches.spans import Lines, under

WIDE = ".float()"
_SET_THERE = "Set it in line {}, where the job makes an autocast of its own."


def autocast_lines(editor: Editor, dtype: str, arguments: Mapping[str, str], precision: str) -> None:
    """`arguments`: what transformers takes for it; `precision`: what others call it."""
    trainers = {
        "transformers": arguments,
        "lightning": {"precision": f'"{precision}-mixed"'},
        "pytorch_lightning": {"precision": f'"{precision}-mixed"'},
        "accelerate": {"mixed_precision": f'"{precision}"'},
    }
    calls, spans = editor.places("call"), editor.some("span")
    by_library = next((one for one in (*spans, *calls) if one.library in trainers), None)
    if by_library is not None:
        editor.set_in_trainer(by_library, trainers)
        return
    if editor.some("refused"):
        raise NoPatch("Use `binary_cross_entropy_with_logits`: autocast refuses a loss of probabilities.")
    trained = [one for one in calls if "trains" in one.given]
    wide = {one.spots[0] for one in calls if "widened" in one.given}
    if (own := _own(editor, calls)) is not None:
        _set_in(own.edits, own.context, f"{own.edits.module('torch')}.{dtype}")
        wrapped = [own.lines]
    elif trained:
        wrapped = _wrap_spans(editor, spans, dtype, wide)
    else:
        wrapped = _wrap_calls(editor, calls, dtype)
    for place in calls if own else trained or calls:
        _widen(editor, place, wrapped)


class _Own(NamedTuple):
    """An autocast of the job, and what stands under it."""

    edits: FileEdits
    context: ast.Call
    lines: Lines


def _own(editor: Editor, calls: list[Place]) -> _Own | None:
    """The job's own autocast around a call of its model, switched off or of other numbers: one that is put
    around it would change nothing inside."""
    for spot in dict.fromkeys(spot for one in calls for spot in one.spots):
        edits = editor.file(spot.file)
        source = edits.source
        try:
            statement = source.statement(source.call_at(spot))
        except NoPatch:  # one that led here: whether it stands under autocast is not seen
            continue
        for block in source.above(statement):
            for context in (item.context_expr for item in getattr(block, "items", ())):
                if made := _autocast_of(source, context):
                    return _Own(edits, made, _lines(spot, block))
        function = source.scope(statement)
        for decorator in getattr(function, "decorator_list", ()):
            if made := _autocast_of(source, decorator):
                return _Own(edits, made, _lines(spot, function))
    return None


def _lines(spot: Spot, block: Any) -> Lines:
    return Lines(spot.file, range(block.lineno, (block.end_lineno or block.lineno) + 1))


def _autocast_of(source: Source, used: ast.expr) -> ast.Call | None:
    """Of something that is entered: the call that makes an autocast of it, maybe under a name."""
    if source.resolved(used.func if isinstance(used, ast.Call) else used).endswith("autocast"):
        if not isinstance(used, ast.Call):
            raise NoPatch(_SET_THERE.format(used.lineno))
        return used
    values = _given_to(source, used.id) if isinstance(used, ast.Name) else []
    calls = [node for value in values for node in ast.walk(value) if isinstance(node, ast.Call)]
    found = [one for one in calls if source.resolved(one.func).endswith("autocast")]
    if len(found) > 1:
        raise NoPatch(_SET_THERE.format(found[0].lineno))
    return found[0] if found else None


def _given_to(source: Source, name: str) -> list[ast.expr]:
    """What a name is given, wherever that is."""
    made = (one for one in ast.walk(source.tree) if isinstance(one, ast.Assign))
    return [
        one.value for one in made if any(isinstance(to, ast.Name) and to.id == name for to in one.targets)
    ]


def _set_in(edits: FileEdits, context: ast.Call, dtype: str) -> None:
    """Switched on, in this format. `torch.cuda.amp.autocast` takes its arguments in another order."""
    old = edits.source.resolved(context.func).startswith(("torch.cuda", "torch.cpu"))
    place = 0 if old else 2
    starred = any(one.arg is None for one in context.keywords)
    if starred or keyword_of(context, "enabled") or len(context.args) > place:
        edits.set_argument(context, "enabled", Setting("True", place, starred))
    edits.set_argument(context, "dtype", Setting(dtype, 1, starred))


def _wrap_spans(editor: Editor, spans: list[Place], dtype: str, wide: set[Spot]) -> list[Lines]:
    """One for each backward pass: the first that can be wrapped is how the step goes."""
    wrapped: list[Lines] = []
    whys: list[str] = []
    ended = dict.fromkeys(one.until for one in spans)
    for until in ended:
        for one in spans:
            if one.until != until:
                continue
            try:
                behind = WIDE if one.spots[0] in wide else ""
                wrapped.append(under(editor, one, _header(one, dtype), behind))
                break
            except NoPatch as error:
                whys.append(str(error))
        else:
            raise NoPatch(whys[-1])
    if not wrapped:
        raise NoPatch("no backward pass was seen after the model's call")
    return wrapped


def _wrap_calls(editor: Editor, calls: list[Place], dtype: str) -> list[Lines]:
    if any(one.library for one in calls):
        raise NoPatch(f"{calls[0].library} calls the model, not the job's own code")
    return [under(editor, one, _header(one, dtype)) for one in calls]


def _header(place: Place, dtype: str) -> str:
    return f'with {{torch}}.autocast("{place.value}", dtype={{torch}}.{dtype}):'


def _widen(editor: Editor, place: Place, wrapped: list[Lines]) -> None:
    """As in the trial: what goes on with the model's result, numpy first of all, may know no 16 bits."""
    if "widened" not in place.given or place.library:
        return
    if any(spot.file == one.file and spot.line in one.lines for spot in place.spots for one in wrapped):
        editor.file(place.spots[0].file).append(editor.call(place.spots[0]), WIDE)
