"""What a path is of: a Diagnosis that `--json` wrote, or files that a Diagnosis is made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from findwall.errors import InputError

if TYPE_CHECKING:
    from findwall.model.diagnosis import Diagnosis

HEAD_BYTES = 200  # of a file: a Diagnosis says there what it is


def document_at(path: Path) -> Diagnosis | None:
    """A Diagnosis, where the path is that of one."""
    from findwall.model.diagnosis import SCHEMA, from_json

    if not path.is_file():
        return None
    with path.open("rb") as file:
        if f'"{SCHEMA}"'.encode() not in file.read(HEAD_BYTES):
            return None
    import msgspec

    try:
        return from_json(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is no whole Diagnosis: {error}", "Write it again with --json.") from error
