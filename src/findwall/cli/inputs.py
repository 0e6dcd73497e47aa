"""What a path is of: a Diagnosis that `--json` wrote, or files that a Diagnosis is made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from findwall.errors import InputError
from findwall.files import read_small

if TYPE_CHECKING:
    from findwall.model.diagnosis import Diagnosis

MOST_BYTES = 128 << 20  # of a Diagnosis: a thousand times what one has; chosen by hand
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
        return from_json(read_small(path, MOST_BYTES, "Write it again with --json."))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{path} is no whole Diagnosis: {error}", "Write it again with --json.") from error
