"""Files of a run folder, by names that were read in it."""

from __future__ import annotations

import stat
from pathlib import Path

from findwall.errors import InputError


def inside(folder: Path, name: str) -> Path:
    """A plain file of this folder, by a name that was read: never one elsewhere, a pipe, a device."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InputError(
            f"{name!r} names no file of {folder.name}.", "Give a folder that findwall run wrote."
        )
    path = folder / name
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}.", "Was the folder copied whole?") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a plain file.", "Give a folder that findwall run wrote.")
    return path
