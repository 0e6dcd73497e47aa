"""Logs of NCCL_DEBUG=INFO, given beside the traces of the same job: which transport connects whom.

A line is looked at for what NCCL writes; whatever else a job prints between is passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.measured_run import Connection, NcclLog, Run
from findwall.readers.reader import reader_of
from findwall.readers.remote_paths import RemotePath

LARGEST_BYTES = 256 << 20  # what is read of one. Chosen by hand: 1,000 ranks write about 100 MB.
LONGEST_LINE = 4096
LOOKED_AT_BYTES = 1 << 20  # of a file's beginning: NCCL speaks as soon as a job communicates
MOST_PAIRS = 1_000_000
_MARK = b" NCCL INFO "
_LINE = re.compile(r"([^\s:\]]{1,255}):\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL INFO (.{1,1000})")
_CHANNEL = re.compile(
    r"^Channel \d{1,4}(?:/\d{1,4})? : (\d{1,7})\[[0-9a-f]{1,16}\] -> (\d{1,7})\[[0-9a-f]{1,16}\]"
    r"(?: \[(send|receive)\])? via ([^\n]{1,80})$"
)
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_SWITCHED_OFF = re.compile(r"^(NCCL_[A-Z0-9_]{1,40}_DISABLE) set by environment to ([1-9]\d{0,3})\b")
_Pair = tuple[int, int, str, bool | None]  # ranks, the lower first; the transport; GPU Direct

HINT = "Give the traces of the same job too: findwall read FOLDER nccl.log."


def is_log(path: Path) -> bool:
    """A plain file that lies here, that no reader knows, and NCCL has written into."""
    try:
        if isinstance(path, RemotePath) or not path.is_file() or reader_of(path) is not None:
            return False
        with path.open("rb") as file:
            return _MARK in file.read(LOOKED_AT_BYTES)
    except (OSError, ValueError):
        return False


def parted(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """The logs among these paths, and all others. InputError where there is nothing but logs."""
    logs = [path for path in paths if is_log(path)]
    others = [path for path in paths if path not in logs]
    if logs and not others:
        raise InputError(f"{logs[0]} is a log of NCCL: it says how ranks are connected, and no times.", HINT)
    return logs, others


def connected_by(run: Run, logs: list[Path]) -> Run:
    """The run with what its logs say. Several are read as one."""
    if not logs:
        return run
    paths = (*run.paths, *(str(path) for path in logs))
    return replace(run, paths=paths, nccl=read_logs(logs))


def read_logs(paths: list[Path]) -> NcclLog:
    found = _Found()
    for path in paths:
        try:
            with path.open("rb") as file:
                found.read(file)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    return found.log(str(paths[0]))


class _Found:
    """What was seen so far."""

    def __init__(self) -> None:
        self.version = ""
        self.off: dict[str, None] = {}
        self.pairs: dict[_Pair, None] = {}
        self.hosts: dict[int, set[str]] = {}  # that a rank's own lines come from
        self.is_cut = False

    def read(self, file: IO[bytes]) -> None:
        left = LARGEST_BYTES
        while left > 0 and len(self.pairs) < MOST_PAIRS:
            line = file.readline(LONGEST_LINE)
            if not line:
                return
            left -= len(line)
            if b"NCCL" in line:
                self._line(line.decode("utf-8", "replace").rstrip())
        self.is_cut = True

    def _line(self, line: str) -> None:
        if not self.version and (version := _VERSION.search(line)):
            self.version = version[1]
        said = _LINE.search(line)
        if said is None:
            return
        host, what = said.groups()
        if off := _SWITCHED_OFF.match(what):
            self.off[off[1]] = None
        elif channel := _CHANNEL.match(what):
            one, other = int(channel[1]), int(channel[2])
            self.hosts.setdefault(other if channel[3] == "receive" else one, set()).add(host)
            via, direct = _transport(channel[4])
            self.pairs[(min(one, other), max(one, other), via, direct)] = None

    def log(self, path: str) -> NcclLog:
        counts: Counter[Connection] = Counter()
        for one, other, via, direct in self.pairs:
            counts[Connection(via, self._across(one, other), direct)] += 1
        connections = tuple(replace(found, count=count) for found, count in counts.most_common())
        return NcclLog(path, self.version, connections, tuple(self.off), self.is_cut)

    def _across(self, one: int, other: int) -> bool | None:
        """A number that several hosts use is of several communicators: nobody knows which is meant."""
        first, second = self.hosts.get(one, set()), self.hosts.get(other, set())
        return first != second if len(first) == len(second) == 1 else None


def _transport(told: str) -> tuple[str, bool | None]:
    """Its kind, and of a network whether adapters reach the GPU's memory themselves."""
    parts = told.split("/")
    if parts[0] == "NET":
        return "/".join(parts[:2]), any(part.startswith("GDRDMA") for part in parts[2:])
    return ("SHM" if parts[0] == "SHM" else "/".join(parts[:2])), None
