"""Whether a finding fails a command, as `--fail-wall` and `--fail-slower` ask for in CI.

Only what was found fails: without a verdict nothing does. What `.findwall.toml` accepts is named, and passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from findwall.model.accepted import FILE, Accepted, check_asked, load
from findwall.model.diagnosis import Wall
from findwall.model.measurement import DIAGNOSIS_FILE
from findwall.report.printable_names import clean

FAILED_EXIT = 3


class Judged(msgspec.Struct, frozen=True):
    """The exit code, and what is said of it; empty: nothing."""

    code: int
    said: str = ""


class _Document(msgspec.Struct):
    """What a gate needs of a Diagnosis."""

    wall: Wall


class WallGate:
    """Fails on the walls and causes that were asked for. Made before a job runs: a misspelt file or name is
    said before hours go by, and the job may change its folder."""

    def __init__(self, asked: Iterable[str], script: str | None = None) -> None:
        self._asked = tuple(dict.fromkeys(asked))
        for name in self._asked:
            check_asked(name)
        self._script = script
        self._accepted = load(Path.cwd()) if self._asked else []

    def of_run(self, folder: Path | None) -> Judged:
        """The verdict on a job that has just ended."""
        try:
            document = None if folder is None else (folder / DIAGNOSIS_FILE).read_bytes()
            wall = None if document is None else msgspec.json.decode(document, type=_Document).wall
        except (OSError, msgspec.MsgspecError):
            wall = None
        return self.of_wall(wall)

    def of_wall(self, wall: Wall | None, script: str | None = None) -> Judged:
        if not self._asked:
            return Judged(0)
        if wall is None or wall.wall is None:
            return Judged(0, "--fail-wall judged nothing: there is no verdict")
        asked = next((name for name in self._asked if name in (wall.wall, wall.cause)), None)
        if asked is None:
            return Judged(0)
        named = wall.wall, wall.cause
        entries = [one for one in self._accepted if one.accepts_wall(*named)]
        found = f"the wall is {wall.wall} / {wall.cause}"
        return passed(entries, script or self._script, f"--fail-wall {asked}: {found}", found)


def of_slower(share: float, said: str, script: str | None, accepted: list[Accepted]) -> Judged:
    """A slow-down that is real and larger than allowed."""
    entries = [one for one in accepted if one.accepts_slower(share)]
    return passed(entries, script, f"--fail-slower: {said}", said)


def passed(entries: list[Accepted], script: str | None, failure: str, found: str) -> Judged:
    """A failure, unless one of the entries accepts it for this job today."""
    today = time.strftime("%Y-%m-%d")
    mine = [one for one in entries if one.is_of(script)]
    if holding := [one for one in mine if not one.is_over(today)]:
        until = f" until {holding[0].until}" if holding[0].until else ""
        return Judged(0, clean(f"accepted{until} in {FILE}: {found} ({holding[0].why})"))
    why = ""
    if mine:
        last = max(one.until for one in mine)
        why = f", which {FILE} accepted only until {last}; fix it or renew that entry"
    elif entries and script is None:
        why = f"; {FILE} accepts it for {entries[0].script} alone, and this input does not name its script"
    else:
        why = f"; fix it or accept it in {FILE}"
    return Judged(FAILED_EXIT, clean(f"{failure}{why} (exit code {FAILED_EXIT})"))
