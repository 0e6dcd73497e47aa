"""Nsight Compute: what `ncu --csv` prints, in both its shapes, and its reports where NVIDIA's module is."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.measured_run import Run
from findwall.model.ncu_kernel import NCU, NcuReport
from findwall.ncu.ncu_launches import IDENTITY, Launch, kernel, launches
from findwall.ncu.ncu_metrics import is_metric
from findwall.ncu.ncu_report_file import MAGIC, launches_of
from findwall.ncu.ncu_table import AGAIN, find_table, foreign_locale, looks_like_a_table
from findwall.readers.allowance import Allowance
from findwall.readers.raw_file import RawFile
from findwall.readers.reader import Progress, Reader

SHARE_OF_MEMORY = 8  # of what may be used: the text is held once as bytes, once as lines, and cell by cell
NO_TIME = (
    "Collect it: ncu --set full, or at least --section SpeedOfLight (gpu__time_duration.sum), then export "
    "again."
)
REFUSED_NAMED = 3  # metrics in a sentence


def counted_with(run: Run, path: Path, max_memory: int | None = None) -> Run:
    """The same run, with what Nsight Compute counted of its kernels."""
    if run.kind == NCU:
        hint = f"Give a trace of the same job and --ncu {shlex.quote(run.paths[0])}."
        raise InputError(f"{run.paths[0]} is itself a file of Nsight Compute.", hint)
    return replace(run, ncu=read_report(path, Allowance(max_memory)))


def read_report(path: Path, allowance: Allowance | None = None) -> NcuReport:
    """The kernels of a file; raises InputError where it is damaged, empty or something else."""
    source = RawFile(path)
    try:
        first = source.read()
        if first.startswith(MAGIC):
            found, page, chatter = launches_of(path), "report", 0
        else:
            text = _all(source, first, (allowance or Allowance()).memory // SHARE_OF_MEMORY)
            table = find_table(path, text, lambda name: name in IDENTITY or is_metric(name))
            found, chatter = launches(path, table), table.chatter
            page = "details" if table.is_long else "raw"
    finally:
        source.close()
    return _report(path, found, page, chatter)


def _all(source: RawFile, first: bytes, most: int) -> bytes:
    parts, size = [first], len(first)
    while part := source.read():
        parts.append(part)
        size += len(part)
        if size > most:
            raise InputError(
                f"{source.path} is too long: more than {most >> 20} MiB of text.",
                "Profile fewer kernels (--launch-count), or allow more with --max-memory.",
            )
    if source.cut_off:
        raise InputError(f"{source.path} is damaged: {' '.join(source.notes)}", AGAIN)
    return b"".join(parts)


def _report(path: Path, found: list[Launch], page: str, chatter: int) -> NcuReport:
    if not found:
        raise InputError(f"{path} holds no kernels, only a header.", AGAIN)
    if grouped := next((one.figures.grouped for one in found if one.figures.grouped), ""):
        raise foreign_locale(path, grouped)
    timed = [one for one in map(kernel, found) if one.duration_ns is not None]
    if not timed:
        raise InputError(f"{path} does not say how long any of its {len(found):,} kernels took.", NO_TIME)
    notes = []
    if len(timed) < len(found):
        left = len(found) - len(timed)
        notes.append(f"{left:,} of {len(found):,} kernels are left out: their duration was not collected.")
    refused = sorted({name for one in found for name in one.figures.refused})
    if refused:
        more = f" and {len(refused) - REFUSED_NAMED} more" if len(refused) > REFUSED_NAMED else ""
        notes.append(f"Values that cannot be are left out: {', '.join(refused[:REFUSED_NAMED])}{more}.")
    if chatter:
        notes.append(f"{chatter:,} lines between the rows are not the table's and were skipped.")
    devices = {one.figures.device for one in found if one.figures.device}
    return NcuReport(
        str(path), tuple(timed), devices.pop() if len(devices) == 1 else None, page, tuple(notes)
    )


def accepts(path: Path, head: bytes | None) -> bool:
    if head is None:
        return False
    if head.startswith(MAGIC):
        return True
    try:
        source = RawFile(path)
    except InputError:
        return False
    try:
        return looks_like_a_table(source.read())
    except InputError:
        return False
    finally:
        source.close()


def _read(path: Path, _progress: Progress | None, _workers: int | None, allowance: Allowance) -> Run:
    return Run(NCU, (str(path),), (), ncu=read_report(path, allowance))


READER = Reader(NCU, accepts, _read, alone=True)
