"""Traces of graph captures, beside a trace that replays the graphs: servers keep a `capture_traces` folder.

A capture is no rank of the job: nothing ran on the device. It tells which op launched what, in which order.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.events import Kind, Timeline
from findwall.readers.allowance import Allowance
from findwall.readers.execution_trace import is_execution_trace, read_execution_trace
from findwall.readers.reader import Progress
from findwall.readers.torch_trace import read_trace

CAPTURE_FOLDER = "capture_traces"
_TELLING = (Kind.OP, Kind.ANNOTATION, Kind.RUNTIME, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


def captures_beside(
    paths: list[Path], progress: Progress | None, workers: int | None, allowance: Allowance
) -> tuple[list[Timeline], list[str]]:
    """Every capture beside these files or inside these folders, and what could not be read of them."""
    folders = {_folder_of(path): None for path in paths}
    found: list[Timeline] = []
    refused: list[str] = []
    for file in (file for folder in folders for file in _files(folder)):
        try:
            found.append(read_capture(file, progress, workers, allowance))
        except InputError as error:
            refused.append(str(error))
    return found, refused


def of_rank(captures: list[Timeline], rank: int | None) -> tuple[Timeline, ...]:
    """Those that a rank made: those that name it, and those that name none."""
    return tuple(capture for capture in captures if rank is None or capture.header.rank in (None, rank))


def _folder_of(path: Path) -> Path:
    return (path if path.is_dir() else path.parent) / CAPTURE_FOLDER


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []  # there is none, as beside most traces


def read_capture(
    file: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    allowance: Allowance | None = None,
) -> Timeline:
    """A profiler's trace of the capture, or torch's own list of its ops."""
    if is_execution_trace(file):
        return read_execution_trace(file)
    return _without_frames(read_trace(file, progress, workers, allowance))


def _without_frames(capture: Timeline) -> Timeline:
    """A capture with stacks is nine parts Python frames, which say nothing of its order."""
    return replace(capture, events=capture.events.take(capture.events.is_kind(*_TELLING)))
