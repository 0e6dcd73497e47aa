"""The number of threads that torch's ops use, set in the script."""

from __future__ import annotations

from findwall.patches import NoPatch
from findwall.patches.editor import Editor


def hold_in_script(editor: Editor) -> None:
    """Where the job sets it, the number there; else a line behind the imports."""
    own = editor.some("threads")
    for place in own:
        call = editor.call(place.spots[0])
        if place.library or len(call.args) != 1 or call.keywords:
            raise NoPatch(f"Set torch's threads to {place.value}, which the job sets in a way of its own.")
        editor.file(place.spots[0].file).replace(call.args[0], place.value)
    if not own:
        place = editor.places("script")[0]
        editor.at_start(place, f"{{torch}}.set_num_threads({place.value})")
