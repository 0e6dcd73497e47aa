"""From the paths a person gives to a Run: files, folders, several of either."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.model.events import Timeline
from findwall.model.measured_run import Rank, Run
from findwall.model.ncu_kernel import NCU
from findwall.readers import torch_trace
from findwall.readers.allowance import Allowance
from findwall.readers.capture_traces import captures_beside, of_rank
from findwall.readers.one_job import Identity, identify, strangers
from findwall.readers.rank_summaries import is_beside_its_trace
from findwall.readers.reader import Progress, reader_of
from findwall.readers.remote_paths import RemotePath

_HINT = (
    "Give a trace of torch.profiler, an Nsight Systems export, a folder of them, or a findwall run folder."
)


_RANK_FOLDER = re.compile(r"^(?:rank|worker|gpu|node)?[-_. ]*(\d+)$", re.IGNORECASE)


class _Gathered(msgspec.Struct):
    ranks: list[Timeline] = msgspec.field(default_factory=list)
    identities: list[Identity] = msgspec.field(default_factory=list)
    ignored: int = 0
    refused: list[str] = msgspec.field(default_factory=list)
    seen: set[str] = msgspec.field(default_factory=set)
    repeated: int = 0
    kinds: set[str] = msgspec.field(default_factory=set)  # of the formats they were written in
    summaries: list[Rank] = msgspec.field(default_factory=list)  # ranks of whom no trace is here

    @property
    def count(self) -> int:
        return len(self.ranks) + len(self.summaries)

    def is_new(self, path: Path) -> bool:
        """Whether this file has not been read before, by whatever name: it would be a rank twice."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):  # a name that opening it will complain of
            real = str(path)
        new = real not in self.seen
        self.repeated += not new
        self.seen.add(real)
        return new

    def add(self, run: Run, folder: Path | None = None) -> None:
        """More ranks. Judged as they come: a folder of strangers is not read to its end first."""
        self.kinds.add(run.kind)
        self.summaries += [rank for rank in run.ranks if rank.summary is not None]
        for timeline in run.timelines:
            self._add_rank(timeline, folder)

    def _add_rank(self, timeline: Timeline, folder: Path | None) -> None:
        numbered = _RANK_FOLDER.search(Path(timeline.path).parent.name)
        if timeline.header.rank is None and numbered is not None:
            header = msgspec.structs.replace(timeline.header, rank=int(numbered[1]))
            timeline = msgspec.structs.replace(timeline, header=header)
        self.identities.append(identify(timeline))
        reason = strangers(self.identities)
        if reason is not None:
            inside = folder is not None and all(folder in Path(one.path).parents for one in self.identities)
            whose = f"{folder} holds traces that" if inside else "These traces"
            hint = f"Read them one at a time: findwall read {shlex.quote(timeline.path)}"
            raise InputError(f"{whose} are not ranks of one job: {reason}.", hint)
        self.ranks.append(timeline)


def open_run(
    paths: list[Path],
    progress: Progress | None = None,
    workers: int | None = None,
    max_memory: int | None = None,
) -> Run:
    """Everything that can be read at these paths, as one run; its ranks in order.

    `max_memory` is in bytes; where it is None, the machine and its limits decide.
    """
    if not paths:
        raise InputError("No path was given.", _HINT)
    allowance = Allowance(max_memory)
    readers = [reader_of(path) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        if reader is not None and reader.alone:
            if len(paths) > 1:
                if reader.kind == NCU:
                    raise InputError(
                        f"{path} is what Nsight Compute counted, not a rank.",
                        f"Give the trace, and this with --ncu {shlex.quote(str(path))}.",
                    )
                what = reader.kind.replace("-", " ")
                raise InputError(
                    f"{path} is a {what}, which cannot be combined with others.", "Give it by itself."
                )
            return reader.read(path, progress, workers, allowance)
    gathered = _Gathered()
    for path, reader in zip(paths, readers, strict=True):
        if _is_folder(path):
            _read_folder(path, gathered, progress, workers, allowance)
        elif gathered.is_new(path):
            # What nobody accepts was named by a person all the same: they are told what is wrong with it.
            gathered.add((reader or torch_trace.READER).read(path, progress, workers, allowance))
    timelines = sorted(gathered.ranks, key=_rank_order)
    summaries = sorted(gathered.summaries, key=lambda rank: rank.number)
    _refuse_doubles(timelines, summaries)
    here = [path for path in paths if not isinstance(path, RemotePath)]
    captures, unreadable = captures_beside(here, progress, workers, allowance)
    gathered.refused += unreadable
    ranks = (
        Rank(number, timeline, of_rank(captures, timeline.header.rank))
        for number, timeline in zip(_numbers(timelines), timelines, strict=True)
    )
    return Run(
        gathered.kinds.pop() if len(gathered.kinds) == 1 else torch_trace.READER.kind,
        tuple(str(path) for path in paths),
        (*ranks, *summaries),
        notes=_notes(gathered, timelines, summaries),
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}.", "Check the path.") from error


def _read_folder(
    folder: Path, gathered: _Gathered, progress: Progress | None, workers: int | None, allowance: Allowance
) -> None:
    """Every trace in a folder, or in the folders of ranks in it; what is none is counted, what is a broken
    one is named."""
    before = gathered.count
    found = _listed(folder)
    files = [path for path in found if path.is_file() and gathered.is_new(path)]
    for path in files:
        _read_rank(path, folder, gathered, progress, workers, allowance)
    if gathered.count == before:
        inner = [path for one in found if one.is_dir() for path in _listed(one) if path.is_file()]
        new = [path for path in inner if gathered.is_new(path)]
        files, found = files + new, found + inner
        for path in new:
            _read_rank(path, folder, gathered, progress, workers, allowance)
    if gathered.count == before and (files or not any(path.is_file() for path in found)):
        reason = f" {gathered.refused[0]}" if gathered.refused else ""
        raise InputError(f"{folder} holds no readable trace ({len(files)} files seen).{reason}", _HINT)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"{folder} cannot be listed: {error.strerror}.", "Check its owner and mode."
        ) from error


def _read_rank(
    path: Path,
    folder: Path,
    gathered: _Gathered,
    progress: Progress | None,
    workers: int | None,
    allowance: Allowance,
) -> None:
    reader = reader_of(path)
    # What is a job by itself is no rank of this one.
    if reader is None or reader.alone or is_beside_its_trace(path):
        gathered.ignored += 1
        return
    try:
        run = reader.read(path, progress, workers, allowance)
    except InputError as error:
        gathered.refused.append(str(error))
        return
    gathered.add(run, folder)


def _rank_order(timeline: Timeline) -> tuple[bool, int, str]:
    rank = timeline.header.rank
    return rank is None, rank or 0, timeline.path


def _numbers(timelines: list[Timeline]) -> list[int]:
    """The ranks as the traces number them; where not all do, their places."""
    said = [timeline.header.rank for timeline in timelines]
    known = [rank for rank in said if rank is not None]
    return known if len(known) == len(said) else list(range(len(said)))


def _refuse_doubles(timelines: list[Timeline], summaries: list[Rank]) -> None:
    """A rank exists once, be it as a trace or as a summary; where they say which they are."""
    numbers = [one.summary.rank for one in summaries if one.summary is not None]
    numbers += [one.header.rank for one in timelines] if summaries else []
    said = [number for number in numbers if number is not None]
    twice = next((number for number in said if said.count(number) > 1), None)
    if twice is not None:
        raise InputError(f"Rank {twice} was given twice.", "Give its trace or its summary, not both.")


def _notes(gathered: _Gathered, ranks: list[Timeline], summaries: list[Rank]) -> tuple[str, ...]:
    notes = []
    if gathered.ignored:
        notes.append(f"{gathered.ignored} other files in the folder were ignored.")
    if gathered.repeated:
        notes.append(f"{gathered.repeated} files were given more than once and read once.")
    notes += [f"Left out: {reason}" for reason in gathered.refused]
    worlds = {timeline.header.world_size for timeline in ranks if timeline.header.world_size}
    worlds |= {one.summary.world_size for one in summaries if one.summary and one.summary.world_size}
    if len(worlds) == 1 and gathered.count < max(worlds):
        notes.append(f"{gathered.count} of {max(worlds)} ranks are here.")
    return tuple(notes)
