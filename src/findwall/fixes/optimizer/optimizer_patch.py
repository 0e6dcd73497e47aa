"""Arguments of an optimizer, set in the call that makes it."""

from __future__ import annotations

import ast

from findwall.model.applied import Place
from findwall.patches import NoPatch
from findwall.patches.editor import Editor, Trainers


def set_way(editor: Editor, place: Place, way: str, trainers: Trainers | None = None, **also: str) -> None:
    """`fused=True` or `foreach=True`, and what else it takes; with what a checkpoint does to it."""
    if not place.library:
        _refuse_others(editor, place, way)
    editor.set_arguments(place, trainers, **{way: "True"}, **also)
    if editor.some("loaded"):
        editor.remark(
            f"A checkpoint that was saved without it takes it out again: set `{way}` to True in each of the "
            "checkpoint's `param_groups` before `load_state_dict`."
        )


def _refuse_others(editor: Editor, place: Place, way: str) -> None:
    """A call that makes what a table or a variable names may make another optimizer tomorrow, which need not
    take this."""
    function = editor.call(place.spots[0]).func
    name = editor.file(place.spots[0].file).source.resolved(function).rpartition(".")[2]
    own_class = isinstance(function, ast.Attribute) and function.attr == "__init__"
    if place.value and name != place.value and not own_class:
        raise NoPatch(
            f"Pass `{way}=True` where {place.value} is chosen: line {place.spots[0].line} may make other "
            "optimizers too, which need not take it."
        )
