"""The last line of a measured job: its verdict, and the command that shows all of it again."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import msgspec

from findwall.model.measurement import DIAGNOSIS_FILE, REPORT_FILE

# Seconds since the document was written, and the box printed from it: older ones may have scrolled away.
# Chosen by hand, not calibrated.
JUST_PRINTED_S = 5.0


class _Wall(msgspec.Struct):
    wall: str | None = None
    cause: str | None = None
    sentence: str = ""


class _Verdict(msgspec.Struct):
    """What the line needs of the document."""

    wall: _Wall = msgspec.field(default_factory=_Wall)


def closing_line(folder: Path) -> str:
    """One line for the job's owner: with the sentence only where the box may have scrolled away."""
    again = f"`findwall read {shlex.quote(str(folder))}` shows it again"
    page = folder / REPORT_FILE
    again += f", and {page} in a browser" if page.is_file() else ""
    document = folder / DIAGNOSIS_FILE
    try:
        wall = msgspec.json.decode(document.read_bytes(), type=_Verdict).wall
        age_s = time.time() - document.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return again
    named = f"{wall.wall} / {wall.cause}" if wall.wall else "no verdict yet"
    said = f"{named}; {again}"
    if wall.sentence and not 0 <= age_s < JUST_PRINTED_S:
        said = f"{named}: {wall.sentence.rstrip()} {again}"
    return "".join(sign if sign.isprintable() else " " for sign in said)
