"""A run folder, as `findwall run` leaves it: steps timed without the profiler, telemetry, and a trace a rank.

A job may have been killed at any moment: what is missing is a note, not an error, as long as anything is
there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from findwall.errors import InputError
from findwall.files import read_small
from findwall.model.dataflow import Observed
from findwall.model.events import Timeline
from findwall.model.machine import UNKNOWN_CEILINGS
from findwall.model.measured_run import HostLine, Rank, Run
from findwall.model.measurement import (
    ENDED,
    MEASUREMENT_FILE,
    RUN_FILE,
    RUN_SCHEMA,
    Measurement,
    Observation,
    RecordedMemory,
    RunInfo,
    Trace,
)
from findwall.model.memory_history import KnownMemory, MemoryHistory, RecordedRank
from findwall.model.summaries.rank_summary import RankSummary
from findwall.readers.allowance import Allowance
from findwall.readers.beside_the_ranks import read_probes_beside, read_sweep_beside, read_trials_beside
from findwall.readers.capture_traces import read_capture
from findwall.readers.known_memory import read_known_memory
from findwall.readers.observed_steps import read_observed_steps
from findwall.readers.reader import Reader, reader_of
from findwall.readers.remote_paths import RemotePath
from findwall.readers.small_file import inside
from findwall.readers.sound_figures import MOST_RANKS, made_sound
from findwall.readers.step_times import elapsed, evaluated_apart, evaluates_always, step_times
from findwall.readers.torch_trace import read_trace
from findwall.readers.torch_trace.repair import UNDECODABLE
from findwall.units import in_short

_RANK_FOLDER = re.compile(
    r"rank(0|[1-9][0-9]{0,5})"
)  # as they are written: `rank٣` or `rank007` are not ours


NOT_SHARED = (
    "the job ran on several machines: one that does not share this folder keeps its ranks in another, and "
    "`findwall read` takes both together"
)
RUN_FOLDER = "run-folder"  # the kind of run that this reads


def is_run_folder(path: Path) -> bool:
    """One file of ours in its place is enough: the job may have been killed before the others came."""
    if isinstance(path, RemotePath):
        return False  # it is read where it was written
    try:
        ranks = (folder / MEASUREMENT_FILE for folder in _rank_folders(path))
        return (path / RUN_FILE).is_file() or any(file.is_file() for file in ranks)
    except (OSError, ValueError):
        return False  # opening it says what is wrong


def read_run_folder(path: Path, allowance: Allowance | None = None) -> Run:
    """Everything the folder holds, as one run."""
    return read_job([path], allowance or Allowance(), {})


def read_job(paths: list[Path], allowance: Allowance, summaries: Mapping[int, RankSummary]) -> Run:
    """Everything that the folders of one job hold, a machine's each. Of ranks of whom there is a summary no
    trace is read."""
    notes: list[str] = []
    path = paths[0]
    info = _read_info(path, notes)
    ranks = [one for each in paths for one in _read_ranks(each, notes)]
    ranks.sort(key=lambda one: _number(one[0]))
    if not ranks:
        raise InputError(
            f"{path} holds no measurement that can be read.",
            "The job was killed before its steps were timed, or findwall failed.",
        )
    world_size = info.world_size if info is not None else ranks[0][1].world_size
    if missing := sorted(set(range(world_size)) - {_number(folder) for folder, _ in ranks}):
        notes.append(f"{len(ranks)} of {world_size} ranks wrote their measurement, not {in_short(missing)}")
        if info is not None and info.spans:
            notes.append(NOT_SHARED)
    first = ranks[0][1]
    probes, trials = read_probes_beside(path, first.device_name, notes), read_trials_beside(path, notes)
    sweep = read_sweep_beside(path, notes)
    every = [
        _rank(folder, measured, info, allowance, summaries.get(_number(folder))) for folder, measured in ranks
    ]
    return Run(
        kind=RUN_FOLDER,
        paths=tuple(str(one) for one in paths),
        ranks=tuple(every),
        ceilings=first.ceilings or UNKNOWN_CEILINGS,
        environment=first.environment,
        cost=first.cost,
        samples_per_step=first.samples_per_step,
        sample_unit=first.sample_unit,
        notes=tuple(notes),
        crash=next((one.job_ended for _, one in ranks if one.job_ended not in ("", ENDED)), ""),
        probes=probes,
        trials=trials,
        sweep=sweep,
    )


def run_info(path: Path) -> RunInfo | None:
    """How the job was called; None where nobody can say."""
    return _read_info(path, [])


def measurement_in(path: Path, number: int) -> Measurement | None:
    """What was measured of one rank, without what cannot be; None where that cannot be read."""
    found = (measured for folder, measured in _read_ranks(path, []) if _number(folder) == number)
    measured = next(found, None)
    return None if measured is None else made_sound(measured, number, [])


def failed_rank(path: Path, number: int) -> Rank | None:
    """A rank with what its memory says, and no trace; None where it cannot be read, or memory did not end."""
    measured = measurement_in(path, number)
    if measured is None or measured.oom is None:
        return None
    kind, recorded = _recorded(path / f"rank{number}", measured, [], Allowance())
    return kind(**recorded, number=number, oom=measured.oom, failed_model=measured.failed_model)


def read_rank(folder: Path) -> tuple[Rank, Measurement]:
    """One rank's folder with its trace, and nothing beside that. InputError where nothing was measured."""
    try:
        found = msgspec.json.decode(read_small(folder / MEASUREMENT_FILE), type=Measurement, strict=False)
    except (OSError, *UNDECODABLE) as error:
        raise InputError(f"{folder}/{MEASUREMENT_FILE} cannot be read ({_reason(error)})") from error
    notes: list[str] = []
    measured = made_sound(found, _number(folder), notes)
    timeline = _read_timeline(folder, measured, notes, Allowance())
    rank = Rank(
        number=measured.rank,
        node=measured.node,
        in_line_ns=_in_line(measured.trace),
        timeline=timeline,
        evaluated=evaluated_apart(measured),
        host_lines=_lines(measured),
        device_kind=measured.device_kind,
        device_name=measured.device_name,
        notes=tuple(notes),
    )
    return rank, measured


def _rank(
    folder: Path,
    found: Measurement,
    info: RunInfo | None,
    allowance: Allowance,
    summary: RankSummary | None = None,
) -> Rank:
    """`summary`: in place of its trace."""
    notes: list[str] = []
    measured = made_sound(found, _number(folder), notes)
    traced = measured if summary is None else replace(measured, trace=Trace(), observed=Observation())
    timeline = _read_timeline(folder, traced, notes, allowance) if summary is None else None
    captures, replays = _read_captures(folder, traced, notes, allowance)
    notes.extend(measured.notes)
    timed = step_times(measured, notes)
    kind, recorded = _recorded(folder, measured, notes, allowance)
    return kind(
        **recorded,
        number=measured.rank,
        node=measured.node,
        in_line_ns=_in_line(measured.trace),
        timeline=timeline,
        summary=summary,
        why_no_trace="" if measured.trace.file else measured.trace.why_not,
        captures=captures,
        observed=_read_observed(folder, traced, notes),
        replays=replays,
        traced_kinds=tuple(measured.trace.kinds),
        first_traced=measured.trace.first_step or 0,
        evaluated=evaluated_apart(measured),
        evaluates=evaluates_always(measured),
        step_times=timed,
        telemetry=measured.telemetry,
        host_lines=_lines(measured),
        collected_at=measured.collected_at,
        device_kind=measured.device_kind,
        device_name=measured.device_name or (_cores(info) if measured.device_kind == "cpu" else None),
        peak_memory=measured.peak_memory,
        total_memory=measured.total_memory,
        totals=measured.totals,
        oom=measured.oom,
        failed_model=measured.failed_model,
        caught=measured.caught,
        first_timed=measured.first_timed,
        loader_workers=measured.loader_workers,
        compiles=sum(measured.steps.compiles),
        elapsed=elapsed(measured),
        notes=tuple(dict.fromkeys(notes)),
    )


def _read_info(path: Path, notes: list[str]) -> RunInfo | None:
    try:
        info = msgspec.json.decode(read_small(path / RUN_FILE), type=RunInfo, strict=False)
    except FileNotFoundError:
        notes.append(f"{RUN_FILE} is missing")
        return None
    except (InputError, *UNDECODABLE) as error:
        notes.append(f"{RUN_FILE} cannot be read ({_reason(error)})")
        return None
    if not 1 <= info.world_size <= MOST_RANKS:
        notes.append(f"{RUN_FILE} says that the job has {info.world_size} ranks, which cannot be right")
        return None
    if info.schema != RUN_SCHEMA:
        notes.append(f"the folder was written as {info.schema}, this findwall reads {RUN_SCHEMA}")
    return info


def _in_line(trace: Trace) -> float | None:
    return None if trace.in_line_ns is None or trace.steps < 1 else trace.in_line_ns / trace.steps


def rank_folders(path: Path) -> dict[int, Path]:
    """Where each rank's files are."""
    return {_number(folder): folder for folder in _rank_folders(path)}


def _rank_folders(path: Path) -> list[Path]:
    found = [p for p in path.glob("rank*") if _RANK_FOLDER.fullmatch(p.name) and p.is_dir()]
    return sorted(found, key=_number)


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("rank"))


def _reason(error: BaseException) -> str:
    return error.message if isinstance(error, InputError) else str(error) or type(error).__name__


def _read_ranks(path: Path, notes: list[str]) -> list[tuple[Path, Measurement]]:
    ranks = []
    for folder in _rank_folders(path):
        try:
            content = read_small(folder / MEASUREMENT_FILE)
            ranks.append((folder, msgspec.json.decode(content, type=Measurement, strict=False)))
        except (OSError, InputError, *UNDECODABLE) as error:
            notes.append(f"{folder.name}/{MEASUREMENT_FILE} cannot be read ({_reason(error)})")
    return ranks


def _lines(rank: Measurement) -> tuple[HostLine, ...]:
    return tuple(
        HostLine(line.place, line.function, line.share, line.inside, line.routine, line.looped, line.once)
        for line in rank.host_lines
    )


def _read_timeline(
    folder: Path, rank: Measurement, notes: list[str], allowance: Allowance
) -> Timeline | None:
    """The rank's trace; a note where there is none that can be read."""
    if rank.trace.file is None:
        why = rank.trace.why_not or "the measurement did not get that far"
        if not rank.trace.others_are:
            notes.append(f"no trace of rank {rank.rank}: {why}")
        return None
    try:
        return read_trace(inside(folder, _stored(folder, rank.trace.file)), allowance=allowance)
    except InputError as error:
        notes.append(f"the trace of rank {rank.rank} cannot be read: {error.message}")
        return None


def _stored(folder: Path, name: str) -> str:
    """The name under which a trace is kept: the one it was written under, or packed."""
    try:
        return name if (folder / name).exists() or not (folder / f"{name}.gz").exists() else f"{name}.gz"
    except (OSError, ValueError):
        return name  # opening it says what is wrong


def _read_captures(
    folder: Path, rank: Measurement, notes: list[str], allowance: Allowance
) -> tuple[tuple[Timeline, ...], tuple[int, ...]]:
    """What was kept of the captures of replayed graphs; nothing where a file of them cannot be read."""
    try:
        found = tuple(
            read_capture(inside(folder, _stored(folder, name)), allowance=allowance)
            for name in rank.trace.captures
        )
    except InputError as error:
        notes.append(f"a graph's capture cannot be read: {error.message}")
        return (), ()
    return found, tuple(rank.trace.replays)


def _read_observed(folder: Path, rank: Measurement, notes: list[str]) -> Observed | None:
    """The iterations whose ops were seen with all their tensors."""
    if rank.observed.file is None:
        return None
    try:
        return read_observed_steps(inside(folder, _stored(folder, rank.observed.file)))
    except InputError as error:
        notes.append(f"what flows between the ops is not known: {error.message}")
        return None


def _recorded(
    folder: Path, rank: Measurement, notes: list[str], allowance: Allowance
) -> tuple[type[Rank], dict[str, Any]]:
    """What the allocator did, where that was recorded: the kind of rank that has it, and its fields."""
    told = rank.memory
    if told.snapshot is None and told.known_at_trace is None:
        return Rank, {}
    memory = _read_snapshot(folder, told, notes, allowance) if told.snapshot is not None else None
    return RecordedRank, {"memory": memory, "known_at_trace": _known(folder, told.known_at_trace, notes)}


def _read_snapshot(
    folder: Path, told: RecordedMemory, notes: list[str], allowance: Allowance
) -> MemoryHistory | None:
    """By the reader of snapshots, wherever that lives."""
    try:
        path = inside(folder, told.snapshot or "")
        reader = reader_of(path)
        found = reader.read(path, None, None, allowance) if reader is not None else None
    except InputError as error:
        notes.append(f"what the allocator did cannot be read: {error.message}")
        return None
    memory: MemoryHistory | None = getattr(found, "memory", None)
    if memory is None:
        notes.append(f"{path.name} is no memory snapshot, and is left out")
        return None
    return replace(memory, known=_known(folder, told.known_at_snapshot, notes))


def _known(folder: Path, name: str | None, notes: list[str]) -> KnownMemory | None:
    if name is None:
        return None
    try:
        return read_known_memory(inside(folder, name))
    except InputError as error:
        notes.append(f"{error.message} It is left out.")
        return None


def _cores(info: RunInfo | None) -> str | None:
    """The device of a CPU job that ended, or was killed, before it was asked for."""
    return None if info is None else info.cores


READER = Reader(
    RUN_FOLDER,
    accepts=lambda path, head: is_run_folder(path),
    read=lambda path, progress, workers, allowance: read_run_folder(path, allowance),
    alone=True,
)
