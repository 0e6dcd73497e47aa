"""The last line of a measured job: the verdict in a sentence, and the command that shows all of it again."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from findwall.model.measurement import DIAGNOSIS_FILE


class _Wall(msgspec.Struct):
    wall: str | None = None
    cause: str | None = None
    sentence: str = ""


class _Verdict(msgspec.Struct):
    """What the line needs of the document."""

    wall: _Wall = msgspec.field(default_factory=_Wall)


def closing_line(folder: Path) -> str:
    """One line for the job's owner, whose verdict may have scrolled away hours ago."""
    again = f"`findwall read {shlex.quote(str(folder))}` shows it again"
    try:
        wall = msgspec.json.decode((folder / DIAGNOSIS_FILE).read_bytes(), type=_Verdict).wall
    except (OSError, msgspec.MsgspecError):
        return again
    named = f"{wall.wall} / {wall.cause}" if wall.wall else "no verdict yet"
    said = f"{named}: {wall.sentence.rstrip()}" if wall.sentence else named
    return "".join(sign if sign.isprintable() else " " for sign in f"{said} {again}")
