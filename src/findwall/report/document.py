"""The Diagnosis as JSON, to a file or to standard output."""

from __future__ import annotations

import sys
from pathlib import Path

from findwall.errors import InputError
from findwall.files import write_atomically
from findwall.model.diagnosis import Diagnosis, to_json


def write(diagnosis: Diagnosis, target: str) -> None:
    """Write the document to the path `target`, or to standard output where that is `-`."""
    put(to_json(diagnosis), target)


def put(data: bytes, target: str) -> None:
    """Write a file's content to where a person asked for it."""
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
