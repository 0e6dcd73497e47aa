"""Nsight Systems exports (`nsys export --type sqlite`): every process with device work is a rank.

Opening and schema, device rows, calls, NVTX ranges, processes and what is missing have a file each; here they
become timelines, built as those of torch.profiler are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from findwall.errors import InputError
from findwall.model.events import DEVICE_KINDS, NSYS, ReadQuality, Timeline
from findwall.model.measured_run import Rank, Run
from findwall.readers.allowance import Allowance
from findwall.readers.nsys.database import MAGIC, Database
from findwall.readers.nsys.device_tables import device_tables, waits
from findwall.readers.nsys.export_notes import metrics, system_calls, what_is_missing
from findwall.readers.nsys.export_rows import Rows, process_number
from findwall.readers.nsys.host_calls import operating_system_calls, overhead, runtime_calls
from findwall.readers.nsys.nccl_messages import add_messages
from findwall.readers.nsys.opening import AGAIN
from findwall.readers.nsys.processes import (
    begin_of_recording,
    header_of,
    machine_devices,
    ranks,
    settle_processes,
)
from findwall.readers.nsys.range_processes import RangesBeside
from findwall.readers.nsys.ranges import ranges
from findwall.readers.one_job import Identity, identify, strangers
from findwall.readers.reader import Progress, Reader
from findwall.readers.torch_trace.assembling import Assembler

_RECORD = "Record it with: nsys profile --trace=cuda,nvtx,osrt --pytorch=autograd-shapes-nvtx python …"

_NEVER = np.iinfo(np.int64).max


def read_export(
    path: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    allowance: Allowance | None = None,
) -> Run:
    """The job that one export holds. `progress` hears (ranks done, ranks in all)."""
    database = Database(path)
    beside = RangesBeside(database, workers)
    allowance = allowance or Allowance()
    try:
        with allowance.given_back_on_refusal():
            return _read(database, beside, progress, allowance)
    finally:
        beside.close()
        database.close()


def _read(database: Database, beside: RangesBeside, progress: Progress | None, allowance: Allowance) -> Run:
    device = device_tables(database)
    if not device:
        raise InputError(f"{database.path} holds no GPU work: no kernels, copies or graphs.", _RECORD)
    device = _readable(database, device)
    calls = runtime_calls(database)
    lost = settle_processes(device, calls)
    found = ranks([rows.take(rows.is_readable()) for rows in device])
    if not found:
        raise InputError(
            f"{database.path} does not say which process launched its {lost:,} device rows.", _RECORD
        )
    tables = _all_tables(database, ranges(database, beside.parts()), device, calls)
    begin = begin_of_recording(database, max(int(rows.columns["end"].max()) for rows in device))
    timelines = []
    for done, process in enumerate(found):
        if progress is not None:
            progress(done, len(found))
        quality = ReadQuality()
        if lost:
            quality.notes.append(f"{lost:,} device rows are left out: it is unknown who launched them.")
        timeline = _timeline(database, tables, process, quality, allowance, begin, device)
        timelines.append(timeline)
    return Run(NSYS, (str(database.path),), _of_one_job(timelines, found))


def _readable(database: Database, device: list[Rows]) -> list[Rows]:
    """The tables, if any of their rows says when and on which device it ran."""
    if not any(rows.is_readable().any() for rows in device):
        raise InputError(
            f"{database.path} is damaged: none of its {sum(map(len, device)):,} device rows has a time and a "
            "device.",
            AGAIN,
        )
    return device


def _all_tables(database: Database, named: list[Rows], device: list[Rows], calls: Rows | None) -> list[Rows]:
    """Every table as rows, the device's first."""
    add_messages(database, device, calls)
    work = [*device, *named, *([calls] if calls is not None else [])]
    begin = min(int(rows.columns["start"].min(initial=_NEVER)) for rows in work)
    beside = [
        waits(database, device),
        operating_system_calls(database, _launching(device, calls)),
        *overhead(database),
    ]
    # What the profiler did before the job did anything is no part of the job.
    return [*work, *(rows.take(rows.columns["start"] >= begin) for rows in beside if rows is not None)]


def _launching(device: list[Rows], calls: Rows | None) -> list[int]:
    """Global ids of the threads that launched something on a device."""
    if calls is None:
        return []
    launched = np.concatenate([rows.columns["correlation"] for rows in device])
    threads = calls.columns["global"][np.isin(calls.columns["correlation"], launched)]
    return [int(one) for one in np.unique(threads)]


def _timeline(
    database: Database,
    tables: list[Rows],
    process: int,
    quality: ReadQuality,
    allowance: Allowance,
    begin: int,
    device: list[Rows],
) -> Timeline:
    assembler = Assembler()
    for rows in tables:
        taken, memory = assembler.add(rows.chunk(process))
        allowance.take(database.path, taken, 0, memory)
    header = header_of(database, process, device, begin)
    timeline = assembler.finish(str(database.path), header, quality)
    used = timeline.events.device[timeline.rows(*DEVICE_KINDS)]
    busiest = int(np.bincount(used, minlength=1).argmax())
    origin = timeline.header.base_time_ns - begin
    last = origin + int(timeline.events.end.max(initial=0))
    quality.notes += what_is_missing(timeline, database) + system_calls(timeline)
    of_machine = machine_devices(database, process_number(process)).get(busiest, busiest)
    quality.notes += metrics(database, of_machine, origin, last)
    return timeline


def _of_one_job(timelines: list[Timeline], processes: list[int]) -> tuple[Rank, ...]:
    """The ranks of the job that the process with most device work is of; what is not of it is named."""
    order = sorted(range(len(timelines)), key=lambda at: -int((timelines[at].events.device >= 0).sum()))
    kept: list[int] = []
    identities: list[Identity] = []
    for at in order:
        identity = identify(timelines[at])
        if identities and strangers([*identities, identity]) is not None:
            timelines[order[0]].quality.notes.append(
                f"Process {process_number(processes[at])} is left out: it is no rank of the job that process "
                f"{process_number(processes[order[0]])} is of."
            )
            continue
        identities.append(identity)
        kept.append(at)
    return tuple(Rank(number, timelines[at]) for number, at in enumerate(sorted(kept)))


def _accepts(path: Path, head: bytes | None) -> bool:
    return head is not None and head.startswith(MAGIC)


READER = Reader(NSYS, _accepts, read_export)
