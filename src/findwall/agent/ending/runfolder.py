"""The run folder: its name is nobody else's, and a kill leaves nothing in it or something readable."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

import findwall
from findwall.agent.ending.writes import Writes
from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.agent.rank_sample import TIMING_FILE, RankTiming
from findwall.agent.secrets import mask_arguments
from findwall.files import write_atomically
from findwall.model.applied import APPLIED_FILE, Applied
from findwall.model.arms import DELETES_FILE, READ_BACK_FILE, WRITES_FILE
from findwall.model.measurement import MEASUREMENT_FILE, RUN_FILE, TRACE_FILE, Measurement, RunInfo
from findwall.model.switches.program_options import OPTIONS_FILE, Option

RUNS = "findwall-runs"
OWNER_ONLY = 0o700  # of every folder made here: a job's arguments, paths and source lines are in it
RUNS_BYTES = 2_000_000_000  # of all runs in one folder: beyond that the oldest go; chosen by hand
RUNS_KEPT = 3  # the newest ones stay, whatever their size


@dataclass(slots=True)
class RunFolder:
    """One rank's view of the folder."""

    path: Path
    rank: Membership
    notes: list[str] = field(default_factory=list)
    is_apart: bool = False  # made for this machine's ranks, who do not see that of the first

    @property
    def rank_path(self) -> Path:
        return self.path / f"rank{self.rank.rank}"

    @property
    def trace_path(self) -> Path:
        return self.rank_path / TRACE_FILE

    @property
    def plan_path(self) -> Path:
        """Where rank 0 says which step all ranks trace from."""
        return self.path / "plan.json"

    def write_measurement(self, measurement: Measurement) -> None:
        self._write(MEASUREMENT_FILE, measurement)

    def write_timing(self, timing: RankTiming) -> None:
        self._write(TIMING_FILE, timing)

    def write_applied(self, applied: Applied) -> None:
        self._write(APPLIED_FILE, applied)

    def write_writes(self, seen: Writes) -> None:
        self._write(WRITES_FILE, seen.paths)
        self._write(DELETES_FILE, seen.deleted)
        self._write(READ_BACK_FILE, seen.read_back)

    def write_options(self, options: list[Option]) -> None:
        self._write(OPTIONS_FILE, options)

    def _write(self, name: str, document: Any) -> None:
        self.rank_path.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
        write_atomically(self.rank_path / name, encode(document), private=True)


def encode(document: Any) -> bytes:
    """As JSON. Names of files may hold any bytes; where they are no text, they are shown as what they are."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_as_text(msgspec.to_builtins(document)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return os.fsencode(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_as_text(key): _as_text(member) for key, member in value.items()}
    return [_as_text(member) for member in value] if isinstance(value, (list, tuple)) else value


def open_folder(
    script: str,
    argv: list[str],
    options: Options,
    rank: Membership,
    base: Path | None = None,
    at_last: bool = False,
) -> RunFolder | None:
    """Make the run's folder (rank 0 and single jobs), or find the one rank 0 made; None: not there yet.
    `at_last`: rank 0 must have made it by now. Where it is not to be found, the machine's first rank makes
    one for those on it."""
    parent, name = _place(script, options, base or Path.cwd())
    if rank.speaks:
        return _make(parent, name, script, argv, options, rank)
    found = _follow(parent, rank)
    if found is not None:
        return RunFolder(found, rank)
    if not at_last or rank.local_rank != 0 or not rank.spans:
        return None
    return _make_apart(parent, name, script, argv, options, rank)


def _make_apart(
    parent: Path, name: str, script: str, argv: list[str], options: Options, rank: Membership
) -> RunFolder:
    folder = _make(parent, name, script, argv, options, rank)
    # Now that something was made there, a disk that is shared shows what others have made.
    found = _follow(parent, replace(rank, local_rank=None))
    if found is None:
        folder.is_apart = True
        return folder
    shutil.rmtree(folder.path, ignore_errors=True)
    return RunFolder(found, rank)


def _make(
    parent: Path, name: str, script: str, argv: list[str], options: Options, rank: Membership
) -> RunFolder:
    notes: list[str] = []
    is_first = not parent.exists()
    try:
        path = _make_unique(parent, name, exact=options.out is not None)
    except OSError as error:
        path = Path(tempfile.mkdtemp(prefix="findwall-"))
        notes.append(f"{parent} cannot be written ({error.strerror or error}): the run folder is {path}")
    folder = RunFolder(path, rank, notes)
    if is_first:
        _ignore_in_git(parent)
    _describe(folder, script, argv, options)
    if rank.world_size > 1:
        _point_to(parent, folder)
    if options.out is None:
        prune(parent, keep=path)
    return folder


def _place(script: str, options: Options, base: Path) -> tuple[Path, str]:
    if options.out is not None:
        out = base / options.out
        return out.parent, out.name
    return base / RUNS, safe_name(script)


def safe_name(script: str) -> str:
    stem = Path(script).stem if script.endswith(".py") else Path(script).name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-") or "job"


def _make_unique(parent: Path, name: str, exact: bool) -> Path:
    """mkdir is the lock: of two findwalls that want a name, one gets it and the other the next."""
    parent.mkdir(0o777 if exact else OWNER_ONLY, parents=True, exist_ok=True)
    if exact:
        path = parent / name
        with contextlib.suppress(FileExistsError):
            path.mkdir(OWNER_ONLY)
        with contextlib.suppress(FileExistsError):
            if path.is_dir() and not any(path.iterdir()):  # ours, a person's, or another's that just made it
                (path / "rank0").mkdir(OWNER_ONLY)
                return path
    taken = [
        int(p.name[len(name) + 1 :]) for p in parent.glob(f"{name}-*") if p.name[len(name) + 1 :].isdigit()
    ]
    number = max(taken, default=0)
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            path = parent / f"{name}-{number}"
            path.mkdir(OWNER_ONLY)
            return path


def _ignore_in_git(parent: Path) -> None:
    """The folder of runs, just made, is nothing to commit. A person who wants to takes the file away."""
    if parent.name == RUNS:
        with contextlib.suppress(OSError):
            write_atomically(parent / ".gitignore", b"*\n")


def _describe(folder: RunFolder, script: str, argv: list[str], options: Options) -> None:
    from findwall.machine.ceilings.numpy_cores import core_name  # not needed before torch is there

    info = RunInfo(
        script=script,
        argv=mask_arguments(argv),
        world_size=folder.rank.world_size,
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        findwall=findwall.__version__,
        python=platform.python_version(),
        options=options.as_dict(),
        cores=core_name(),
        job=folder.rank.job,
        spans=folder.rank.spans,
    )
    write_atomically(folder.path / RUN_FILE, encode(info), private=True)


def _pointers(parent: Path, rank: Membership) -> list[Path]:
    """Where rank 0 says which folder it is; and where a machine's first rank does, that sees none of it."""
    whole = parent / f".job-{rank.job}"
    return [whole] if rank.local_rank is None else [whole, parent / f".job-{rank.job}-{platform.node()}"]


def _point_to(parent: Path, folder: RunFolder) -> None:
    # Where the folder had to go elsewhere, the other ranks look beside it in the same fall-back place.
    for place in (parent, Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            names = _pointers(place, folder.rank)
            write_atomically(names[0 if folder.rank.speaks else -1], os.fsencode(folder.path))
            return


def _follow(parent: Path, rank: Membership) -> Path | None:
    places = (parent, Path(tempfile.gettempdir()))
    for pointer in (one for place in places for one in _pointers(place, rank)):
        with contextlib.suppress(OSError):
            path = Path(os.fsdecode(pointer.read_bytes()))
            if path.is_dir() and pointer.stat().st_mtime >= rank.since:  # else a former launch left it
                return path
    return None


def prune(parent: Path, keep: Path, cap: int = RUNS_BYTES) -> list[Path]:
    """Drop the oldest run folders past the cap. Only folders that carry a run.json of ours are touched."""
    with contextlib.suppress(OSError):
        runs = [p for p in parent.iterdir() if p.is_dir() and not p.is_symlink() and (p / RUN_FILE).is_file()]
        runs.sort(key=lambda p: (p / RUN_FILE).stat().st_mtime, reverse=True)
        _prune_pointers(parent)
        return _drop_past(runs, keep, cap)
    return []


def _drop_past(newest_first: list[Path], keep: Path, cap: int) -> list[Path]:
    dropped = []
    total = 0
    for position, run in enumerate(newest_first):
        total += sum(f.stat().st_size for f in run.rglob("*") if f.is_file() and not f.is_symlink())
        if total > cap and position >= RUNS_KEPT and run != keep:
            shutil.rmtree(run, ignore_errors=True)
            dropped.append(run)
    return dropped


def _prune_pointers(parent: Path) -> None:
    for pointer in parent.glob(".job-*"):
        with contextlib.suppress(OSError):
            if not Path(os.fsdecode(pointer.read_bytes())).is_dir():
                pointer.unlink()
