"""The Diagnosis as JSON, to a file or to standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from findwall.errors import InputError
from findwall.model.diagnosis import Diagnosis, to_json


def write(diagnosis: Diagnosis, target: str) -> None:
    """Write the document to the path `target`, or to standard output where that is `-`."""
    data = to_json(diagnosis)
    if target == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        save(Path(target), data)


def save(path: Path, data: bytes) -> None:
    """Write a file whole; say in one line why that cannot be done."""
    try:
        write_atomically(path, data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot write {path}: {reason}", "Name a file in a folder you may write to."
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """All of `data` or nothing new: nobody reads half a file. Devices and pipes are written as they are."""
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
