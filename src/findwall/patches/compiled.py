"""A model compiled where the job gives it its name."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.models import Named, named


def compile_named(editor: Editor, how: str, trainers: Mapping[str, Mapping[str, str]]) -> None:
    """`model.compile()` leaves the model what it is: names in checkpoints, hooks and copies stay. It passes
    by classes that torch itself brings; those need `torch.compile(model)`."""
    for place in editor.places("call"):
        if place.library:
            editor.set_in_trainer(place, trainers)
            continue
        model = named(editor, place)
        if not place.value:
            model.then(f"{model.name}.compile({how})")
            continue
        _refuse_parts(model)
        torch = model.edits.module("torch")
        model.then(f"{model.name} = {torch}.compile({', '.join(filter(None, (model.name, how)))})")


def _refuse_parts(model: Named) -> None:
    """What stands around the compiled model is no list of layers, and its weights have longer names."""
    source = model.edits.source
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Attribute, ast.Subscript)) or source.code(node.value) != model.name:
            continue
        if isinstance(node, ast.Subscript) or "state_dict" in node.attr:
            raise NoPatch(
                f"Use `torch.compile({model.name})` for the calls alone: line {node.lineno} needs the model."
            )
