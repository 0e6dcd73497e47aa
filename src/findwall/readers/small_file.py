"""Small files that must be files: a pipe would wait for ever, a device never end, a huge one fill all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from findwall.errors import InputError

MOST_BYTES = 16 << 20  # of a measurement: a hundred thousand timed steps; chosen by hand


def read_small(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file of at most so many. Raises FileNotFoundError, else InputError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}.", "Check its owner and mode.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is not a plain file.", "Give a folder that findwall run wrote.")
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > most:
        raise InputError(f"{path} is longer than {most >> 20} MiB.", "Give a folder that findwall run wrote.")
    return content


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
