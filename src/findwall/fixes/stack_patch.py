"""One patch for a stack of fixes: each writes its own edits; one that has no safe edit is left out."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.fixes import all_fixes
from findwall.model.applied import Applied
from findwall.model.patch import Patch
from findwall.model.switches.typed_switches import own_name
from findwall.patches import NoPatch
from findwall.patches.diff import diff_path, root_of, to_diff
from findwall.patches.editor import Editor, Files


def patch_of(stack: Sequence[str], applied: Applied) -> Patch:
    """`applied`: what the stack told of itself in a process of its trial."""
    files: Files = {}
    made: list[str] = []
    left: dict[str, str] = {}
    remarks: dict[str, str] = {}
    spots = [spot.file for places in applied.places.values() for one in places for spot in one.spots[-1:]]
    if not spots:
        return Patch(left=dict.fromkeys(stack, "its lines were not found in the job's own code"))
    root = root_of(spots)
    for name in stack:
        fix = own_name(name).partition("=")[0]
        write = all_fixes()[fix].patch
        editor = Editor(applied.places.get(fix, []), files)
        try:
            if write is None:
                raise NoPatch("there is no edit for it")
            write(editor)
            for path, edits in editor.files.items():
                if edits.is_changed:
                    diff_path(path, root)
        except NoPatch as error:
            left[name] = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - fail open: the answer took minutes, an edit is one part of it
            left[name] = f"its edit could not be worked out ({type(error).__name__}: {error})"
            continue
        files = editor.files
        made.append(name)
        if editor.remarks:
            remarks[name] = " ".join(editor.remarks)
    return Patch(to_diff(files, root), str(root), made, left, remarks)
