"""What a reader is, and which there are: a file of this folder with a `READER`, and those `ELSEWHERE`."""

from __future__ import annotations

import importlib
import pkgutil
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from findwall.model.measured_run import Run
from findwall.readers.allowance import Allowance
from findwall.readers.remote_paths import RemotePath

Progress = Callable[[int, int], None]  # bytes done, bytes in all (0 if not known)
# Formats that have a room of their own.
ELSEWHERE = ("findwall.memory.snapshots.snapshot_reader", "findwall.ncu.ncu_reader")
_HEAD = 256  # bytes by which formats are told apart


class Reader(msgspec.Struct, frozen=True):
    """One format. Its name says nothing: what a path holds is told by content."""

    kind: str  # of the runs it gives
    # Told the path and its first bytes: None of a folder, and where looking is not possible or would take
    # them away (a pipe). Never raises.
    accepts: Callable[[Path, bytes | None], bool]
    # On so many workers, within what is allowed; raises InputError.
    read: Callable[[Path, Progress | None, int | None, Allowance], Run]
    alone: bool = False  # a path is a whole job, and nothing else is read with it
    streams: bool = False  # reads a file forward once, so that it may lie elsewhere


@cache
def all_readers() -> tuple[Reader, ...]:
    """Every reader, by the name of its file."""
    folder = importlib.import_module(__package__)
    names = [f"{__package__}.{info.name}" for info in pkgutil.iter_modules(folder.__path__)]
    names = sorted([*names, *ELSEWHERE], key=lambda name: name.rpartition(".")[2])
    modules = [importlib.import_module(name) for name in names]
    return tuple(module.READER for module in modules if hasattr(module, "READER"))


def reader_of(path: Path) -> Reader | None:
    """Who can read this; None where nobody can."""
    readers = all_readers()
    if isinstance(path, RemotePath):
        if path.is_dir():
            return None
        readers = tuple(reader for reader in readers if reader.streams)
    head = _first_bytes(path)
    return next((reader for reader in readers if reader.accepts(path, head)), None)


def _first_bytes(path: Path) -> bytes | None:
    if isinstance(path, RemotePath):
        return path.head(_HEAD)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(_HEAD)
    except (OSError, ValueError):
        return None
