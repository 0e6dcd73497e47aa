"""Summaries of ranks: written where a trace lies, read in its place."""

from __future__ import annotations

from pathlib import Path

from findwall.errors import InputError
from findwall.model.measured_run import Rank, Run
from findwall.model.measurement import SUMMARY_FILE, TRACE_FILE
from findwall.model.summaries.rank_summary import MAGIC, RankSummary, decode, encode
from findwall.readers.allowance import Allowance
from findwall.readers.raw_file import RawFile
from findwall.readers.reader import Progress, Reader

SUFFIX = ".fwrank"
KIND = "rank-summary"
LARGEST_BYTES = 256 << 20  # a summary of more is none. Chosen by hand.


def accepts(path: Path, head: bytes | None) -> bool:
    return head is not None and head.startswith(MAGIC)


def is_beside_its_trace(path: Path) -> bool:
    """What a rank of a measured job left of its trace: who finds both reads the trace."""
    ends = ("", ".gz")
    return path.name == SUMMARY_FILE and any(path.with_name(TRACE_FILE + end).exists() for end in ends)


def read_summary(path: Path) -> RankSummary:
    source, parts = RawFile(path), []
    try:
        while part := source.read():
            parts.append(part)
            if source.consumed > LARGEST_BYTES:
                raise InputError(f"{path} is too large for a rank summary.", "Write it again.")
    finally:
        source.close()
    return decode(b"".join(parts), str(path))


def write_summary(summary: RankSummary, folder: Path, place: int) -> Path:
    """Into a file of its own, by the rank's number; by its place where it says none."""
    number = summary.rank if summary.rank is not None else place
    path = folder / f"rank{number}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(summary))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.", "Check the folder.") from error
    return path


def read(path: Path, progress: Progress | None, workers: int | None, allowance: Allowance) -> Run:
    summary = read_summary(path)
    rank = Rank(summary.rank or 0, device_name=summary.device_name, summary=summary)
    return Run(KIND, (str(path),), (rank,))


READER = Reader(KIND, accepts, read, streams=True)
