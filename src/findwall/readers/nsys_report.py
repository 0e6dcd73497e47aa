"""Reports of Nsight Systems (`.nsys-rep`, `.qdrep`): read through an export, which only `nsys` can make."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.files import program
from findwall.model.events import NSYS
from findwall.model.measured_run import Run
from findwall.readers.allowance import Allowance
from findwall.readers.nsys import read_export
from findwall.readers.nsys.database import MAGIC
from findwall.readers.raw_file import GZIP_MAGIC, ZSTD_MAGIC
from findwall.readers.reader import Progress, Reader

# Nothing in a report's first bytes is documented: what is named so and is none of the other formats is one.
_ENDINGS = (".nsys-rep", ".qdrep")
_LONGEST_EXPORT_S = 1800.0


def read_report(
    path: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    allowance: Allowance | None = None,
) -> Run:
    """Exported where `nsys` is installed; else the command that a person can run where it is."""
    tool = program("nsys")
    target = path.with_suffix(".sqlite")
    command = f"nsys export --type sqlite --output {shlex.quote(str(target))} {shlex.quote(str(path))}"
    if tool is None:
        raise InputError(
            f"{path} is a report of Nsight Systems, which only nsys can open, and nsys is not on PATH.",
            f"Export it, then read {target.name}: {command}",
        )
    with tempfile.TemporaryDirectory(prefix="findwall-") as folder:
        made = Path(folder) / "export.sqlite"
        _export(tool, path, made, command)
        try:
            run = read_export(made, progress, workers, allowance)
        except InputError as error:
            raise InputError(error.message.replace(str(made), str(path)), error.hint) from error
    timelines = [replace(timeline, path=str(path)) for timeline in run.timelines]
    ranks = tuple(replace(rank, timeline=own) for rank, own in zip(run.ranks, timelines, strict=True))
    return replace(run, paths=(str(path),), ranks=ranks)


def _export(tool: str, path: Path, made: Path, command: str) -> None:
    arguments = [tool, "export", "--type", "sqlite", "--output", str(made), str(path)]
    try:
        done = subprocess.run(arguments, capture_output=True, timeout=_LONGEST_EXPORT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"nsys could not export {path} ({type(error).__name__}).", f"Try: {command}"
        ) from error
    if done.returncode != 0 or not made.is_file():
        raise InputError(f"nsys could not export {path}: it ended with {done.returncode}.", f"Try: {command}")


def _accepts(path: Path, head: bytes | None) -> bool:
    if head is None or path.suffix.lower() not in _ENDINGS:
        return False
    return not head.lstrip().startswith((b"{", b"[", MAGIC, GZIP_MAGIC, ZSTD_MAGIC))


READER = Reader(f"{NSYS}-report", _accepts, read_report)
