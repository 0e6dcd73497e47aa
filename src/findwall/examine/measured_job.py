"""A job of several ranks that `findwall run` measured: of one rank the trace, of the others their summaries.

Its ranks lie in one folder, or in one a machine where those share no disk.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.measured_run import Run
from findwall.model.measurement import SUMMARY_FILE, RunInfo
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.reduced.mapping import reduce_all, worker_count
from findwall.ranks.waits_seen import who_waits_most
from findwall.readers.allowance import Allowance
from findwall.readers.rank_summaries import read_summary
from findwall.readers.reader import Progress
from findwall.readers.run_folder import rank_folders, read_job, run_info
from findwall.units import in_short

# Traces of fewer ranks are read whole. Where ranks left summaries, no more that did not are reduced here: a
# job's verdict reads hardly a trace but one. Chosen by hand.
MANY_RANKS = 16


def open_job(paths: list[Path], progress: Progress | None, max_memory: int | None) -> Run | None:
    """None where all traces are read whole: in one folder of few ranks without summaries."""
    folders = _folders(paths)
    told = [(number, folder) for number, folder in folders.items() if (folder / SUMMARY_FILE).is_file()]
    if len(paths) == 1 and not told and len(folders) < MANY_RANKS:
        return None
    notes: list[str] = []
    summaries = _read(told, notes)
    lacking = {number: folder for number, folder in folders.items() if number not in dict(told)}
    summaries = dict(sorted((summaries | _reduce(lacking, bool(told), progress, notes)).items()))
    # Summaries are in the order of their ranks.
    at = list(summaries)[who_waits_most(list(summaries.values()))] if summaries else 0
    others = {number: summary for number, summary in summaries.items() if number != at}
    run = read_job(paths, Allowance(max_memory), others)
    made_s = sum(summary.made_s for summary in summaries.values())
    cost = {**run.cost, "summaries_s": made_s} if made_s else run.cost
    return replace(run, cost=cost, notes=(*run.notes, *notes))


def _folders(paths: list[Path]) -> dict[int, Path]:
    """Each rank's, in order. InputError where these are not of one job."""
    _refuse_strangers(paths)
    found: dict[int, Path] = {}
    for path in paths:
        for number, folder in rank_folders(path).items():
            if number in found:
                raise InputError(f"{found[number]} and {folder} are both rank {number}.", "Give each once.")
            found[number] = folder
    return dict(sorted(found.items()))


def _refuse_strangers(paths: list[Path]) -> None:
    infos = [run_info(path) for path in paths]
    first = infos[0]
    for path, info in zip(paths[1:], infos[1:], strict=True):
        if not _is_one_job(first, info):
            hint = f"Read them one at a time: findwall read {shlex.quote(str(path))}"
            raise InputError(f"{paths[0]} and {path} are not of one launch of a job.", hint)


def _is_one_job(one: RunInfo | None, other: RunInfo | None) -> bool:
    if one is None or other is None or not one.job:
        return False
    return one.job == other.job and one.world_size == other.world_size


def _read(told: list[tuple[int, Path]], notes: list[str]) -> dict[int, RankSummary]:
    found = {}
    for number, folder in told:
        try:
            summary = read_summary(folder / SUMMARY_FILE)
        except InputError as error:
            notes.append(f"rank {number} is left out of what the ranks say together: {error.message}")
            continue
        if len(summary.messages):
            found[number] = summary
        notes += [f"rank {number}: {note}" for note in summary.notes]
    return found


def _reduce(
    lacking: dict[int, Path], some_told: bool, progress: Progress | None, notes: list[str]
) -> dict[int, RankSummary]:
    """Of the traces of those who left none."""
    traced = {number: folder for number, folder in lacking.items() if any(folder.glob("trace.json*"))}
    if not traced:
        return {}
    if some_told and len(traced) > MANY_RANKS:
        notes.append(f"no summary of ranks {in_short(list(traced))} is here: they are left out")
        return {}
    found = {}
    for number, one in zip(traced, reduce_all(list(traced.values()), worker_count(), progress), strict=True):
        if one.refused:
            notes.append(f"rank {number}: {one.refused}")
        elif (summary := one.summary) is not None:
            found[number] = summary
    return found
