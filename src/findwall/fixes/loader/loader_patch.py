"""Arguments of a loader, set in the call that makes it."""

from __future__ import annotations

from pathlib import Path

from findwall.model.applied import Place
from findwall.patches import NoPatch
from findwall.patches.editor import Editor

SHUFFLES = "shuffles"  # a place: its loader draws the order of its samples


def set_in_loader(editor: Editor, place: Place, **values: str) -> None:
    """In the job's call, or by the same names in what transformers takes."""
    if not place.library:
        _refuse_shared(editor, place, values)
    trainer = {f"dataloader_{name}": value for name, value in values.items()}
    changes_order = "persistent_workers" in values and any(
        one.spots == place.spots for one in editor.some(SHUFFLES)
    )
    if changes_order and editor.written(place, "persistent_workers") is not True:
        editor.remark(
            "With persistent_workers=True the shuffled order is another one from the second epoch on: torch "
            "draws one number less an epoch."
        )
    editor.set_arguments(place, {"transformers": trainer}, **values)


def _refuse_shared(editor: Editor, place: Place, values: dict[str, str]) -> None:
    """The trial left the other loaders that this call makes as they were."""
    here = place.spots[0]
    if any(one.spots[0] == here for one in editor.some("beside")):
        listed = ", ".join(f"{name}={value}" for name, value in values.items())
        raise NoPatch(
            f"Pass `{listed}` only for the loader that feeds the steps: line {here.line} of "
            f"{Path(here.file).name} makes others too."
        )
