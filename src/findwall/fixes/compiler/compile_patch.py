"""A model compiled where the job gives it its name."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from findwall.model.applied import Spot
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.job_source import unused
from findwall.patches.model_names import Named, named, needs_itself


def compile_named(editor: Editor, how: str, trainers: Mapping[str, Mapping[str, str]]) -> None:
    """`model.compile()` leaves the model what it is: names in checkpoints, hooks and copies stay. It passes
    by classes that torch itself brings; those need `torch.compile(model)`."""
    functions = editor.some("function")
    for place in functions:
        _decorate(editor, place.spots[0], how)
    for place in editor.some("call") if functions else editor.places("call"):
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


def compile_each_block(editor: Editor) -> None:
    """A loop over what holds the blocks, right behind the line that names the model."""
    for place in editor.places("call"):
        if place.library:
            raise NoPatch(f"{place.library} calls the model: compile its blocks before it is handed over")
        model = named(editor, place)
        if not place.given:
            raise NoPatch(f"Call `.compile()` on each {place.value} of `{model.name}`.")
        block = unused(model.edits.source, "block", "each_block", "compiled_block")
        model.then(
            f"for {block} in {model.name}{place.value}:", f"{model.edits.source.indent_unit}{block}.compile()"
        )


def _decorate(editor: Editor, spot: Spot, how: str) -> None:
    """Right above the function, inside of what decorates it already: as the trial compiled it."""
    edits = editor.file(spot.file)
    found = [
        node
        for node in ast.walk(edits.source.tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == spot.function
        and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == spot.line
    ]
    if len(found) != 1:
        raise NoPatch(f"Put `@torch.compile` on `{spot.function}`, the function that calls the layers.")
    edits.insert_before(found[0], f"@{edits.module('torch')}.compile" + (f"({how})" if how else ""))


def _refuse_parts(model: Named) -> None:
    """What stands around the compiled model is no list of layers, and its weights have longer names."""
    if (line := needs_itself(model)) is not None:
        raise NoPatch(
            f"Use `torch.compile({model.name})` for the calls alone: line {line} needs `{model.name}` itself."
        )
