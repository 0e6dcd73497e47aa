"""Findings that a team lives with: the `[[accept]]` entries of `.findwall.toml`, which no gate fails on.

The file is looked for in the working directory and above it, up to the root of the repository. One entry:

    [[accept]]
    wall = "data"               # or cause = "loader-starved", or both; or slower = "5%", for `compare`
    script = "train.py"         # only for this job; leave it out for every job
    until = 2027-01-01          # the last day it counts; leave it out for good
    why = "the new storage comes in December"
"""

from __future__ import annotations

import datetime
import difflib
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from findwall.errors import InputError
from findwall.files import read_small
from findwall.model.catalogue import WALL_OF, WALLS

FILE = ".findwall.toml"
ROOTS = (".git", ".hg")  # what lies in the root of a repository
HINT = '`[[accept]]` entries hold wall, cause or slower = "5%", and script, until = 2027-01-01, why = "…".'
UNREADABLE = "Make it readable, or take it away to accept nothing."
MOST_BYTES = 1 << 18  # of the file: a thousand entries; chosen by hand
PERCENT = re.compile(r"\s*([0-9]{1,4}(?:\.[0-9]{1,6})?)\s*%\s*")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class Accepted(msgspec.Struct, frozen=True):
    """One entry. It accepts a wall, a cause or both together; or a slow-down."""

    why: str
    wall: str = ""
    cause: str = ""
    slower: float | None = None  # a share of the step before: up to so much
    script: str = ""
    until: str = ""  # YYYY-MM-DD, the last day on which it counts

    def is_of(self, script: str | None) -> bool:
        """Whether it speaks of this job: `train.py` means every one of that name, a path the end of one."""
        if not self.script:
            return True
        own = PurePath(self.script).parts
        return script is not None and PurePath(script).parts[-len(own) :] == own

    def is_over(self, today: str) -> bool:
        return bool(self.until) and today > self.until

    def accepts_wall(self, wall: str, cause: str | None) -> bool:
        named = [(self.wall, wall), (self.cause, cause)]
        return self.slower is None and all(one in ("", found) for one, found in named)

    def accepts_slower(self, share: float) -> bool:
        return self.slower is not None and share <= self.slower


def load(start: Path) -> list[Accepted]:
    """The entries that hold in this folder; none without a file."""
    path = find(start)
    return [] if path is None else parse(path)


def find(start: Path) -> Path | None:
    """The nearest file, from `start` up to the root of its repository; outside of one, in `start` alone."""
    folders = [start, *start.parents]
    root = next((at for at, one in enumerate(folders) if any((one / name).exists() for name in ROOTS)), 0)
    return next((one / FILE for one in folders[: root + 1] if (one / FILE).exists()), None)


def parse(path: Path) -> list[Accepted]:
    """All entries; a word that is not known is an error, for it may be what was meant to be accepted."""
    content = _content(path)
    for name in content:
        if name != "accept":
            raise InputError(f"{path}: there is no `{name}`{_meant(name, ['accept'])}", HINT)
    entries = content.get("accept", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: `accept` is not a list of entries", HINT)
    return [_entry(entry, f"{path}, entry {at}") for at, entry in enumerate(entries, 1)]


def share_of(text: str) -> float | None:
    """A share as people write it, 3%; None: it is none."""
    found = PERCENT.fullmatch(text)
    return None if found is None else float(found[1]) / 100


def _content(path: Path) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        raise InputError(
            f"{path} is there, and Python {sys.version_info[0]}.{sys.version_info[1]} cannot read TOML",
            "Use Python 3.11 or later, or take the file away to accept nothing.",
        )
    toml: Any = importlib.import_module("tomllib")  # by name: the types are checked for a Python without it
    try:
        found: dict[str, Any] = toml.loads(read_small(path, MOST_BYTES, UNREADABLE).decode())
    except ValueError as error:  # bytes that are no text, or a text that is no TOML
        raise InputError(f"{path} is not TOML: {error}", HINT) from error
    except RecursionError as error:
        raise InputError(
            f"{path} is not TOML that anybody writes: lists in lists without end", HINT
        ) from error
    except FileNotFoundError as error:  # gone meanwhile
        raise InputError(f"cannot read {path}: {error.strerror}", UNREADABLE) from error
    return found


def _entry(entry: dict[str, Any], where: str) -> Accepted:
    known = list(Accepted.__struct_fields__)
    for name, value in entry.items():
        if name not in known:
            raise InputError(f"{where}: there is no `{name}`{_meant(name, known)}", HINT)
        if name != "until" and not (isinstance(value, str) and value.strip()):
            raise InputError(f"{where}: `{name}` is not a text in quotes", HINT)
    wall, cause, slower = (entry.get(name, "") for name in ("wall", "cause", "slower"))
    _check_names(wall, cause, where)
    if bool(wall or cause) == bool(slower):
        said = "either a wall or a slow-down, not both" if slower else "a wall, a cause or a slow-down"
        raise InputError(f"{where}: an entry accepts {said}", HINT)
    if "why" not in entry:
        raise InputError(f"{where}: `why` is missing", 'Say it to whoever reads this next: why = "…".')
    share = share_of(slower) if slower else None
    if slower and share is None:
        raise InputError(f"{where}: slower = {slower!r} is not a share", 'Give percent: slower = "5%".')
    script = entry.get("script", "")
    return Accepted(entry["why"].strip(), wall, cause, share, script, _day(entry.get("until"), where))


def _check_names(wall: str, cause: str, where: str) -> None:
    if wall and wall not in WALLS:
        raise InputError(f"{where}: no wall is called {wall!r}{_meant(wall, WALLS)}", _names(WALLS))
    if cause and cause not in WALL_OF:
        raise InputError(f"{where}: no cause is called {cause!r}{_meant(cause, WALL_OF)}", EXPLAIN)
    if wall and cause and WALL_OF[cause] != wall:
        raise InputError(
            f"{where}: {cause} is a cause of the wall {WALL_OF[cause]}, not of {wall}",
            f'Write wall = "{WALL_OF[cause]}", or leave the wall out.',
        )


EXPLAIN = "`findwall explain` lists all walls and causes."


def check_asked(name: str) -> None:
    """Refuse a name that is neither a wall nor a cause: a gate on it would never close."""
    if name not in WALLS and name not in WALL_OF:
        raise InputError(
            f"--fail-wall {name}: no wall or cause is called so{_meant(name, [*WALLS, *WALL_OF])}", EXPLAIN
        )


def _names(known: Sequence[str] | dict[str, Any]) -> str:
    return f"The walls are {', '.join(known)}."


def _meant(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _day(value: Any, where: str) -> str:
    """A date of TOML, which needs no quotes, or the same in quotes."""
    if value is None:
        return ""
    text = str(value) if isinstance(value, str | datetime.date) else f"a {type(value).__name__}"
    if not _DAY.fullmatch(text) or not _is_day(text):
        raise InputError(f"{where}: until = {text} is not a day", "Write it as in until = 2027-01-01.")
    return text


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
