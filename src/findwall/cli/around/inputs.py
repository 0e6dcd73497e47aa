"""What a person gave: a path to a Diagnosis or to other files, a time, places to read from and write to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from findwall.errors import InputError
from findwall.files import read_small

if TYPE_CHECKING:
    from findwall.cli.jobs.launchers import Launch
    from findwall.model.diagnosis import Diagnosis

MOST_BYTES = 128 << 20  # of a Diagnosis: a thousand times what one has; chosen by hand
HEAD_BYTES = 200  # of a file: a Diagnosis says there what it is
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


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


def seconds(text: str) -> float:
    """ "10m", "90s", "1h"."""
    found = _TIME.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InputError(f"'{text}' is no time", "Write it as 10m, 90s or 1h.")
    return float(found[1]) * _SECONDS[found[2]]


def check_places(command: str, launch: Launch, sandbox_dir: str | None, json_target: str | None) -> None:
    """What cannot be read or written is told before minutes are spent."""
    from findwall.agent.options import disabled

    if disabled():
        raise InputError(
            "FINDWALL_DISABLE is set, so nothing is measured", f"Unset it for `findwall {command}`."
        )
    if not launch.is_module and not Path(launch.target).exists():
        raise InputError(
            f"there is no script '{launch.target}'", f"findwall {command} SCRIPT ARGS…, or -m MODULE ARGS…"
        )
    if json_target not in (None, "-") and not Path(str(json_target)).absolute().parent.is_dir():
        raise InputError(f"cannot write {json_target}: its folder is not there", "Name one that is.")
    if sandbox_dir:
        try:
            Path(sandbox_dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "Name a folder that can be made."
            raise InputError(f"cannot make {sandbox_dir}: {error.strerror}", hint) from error
