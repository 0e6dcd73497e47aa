"""Folders of many ranks: each is reduced to its summary first, and only one is read whole.

The one that is read whole speaks for all: it waits most. So neither memory nor time in one process grows with
the number of ranks.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.examine.measured_job import MANY_RANKS, open_job
from findwall.model.measured_run import Rank, Run
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.reduced.mapping import Reduced, reduce_all, worker_count
from findwall.ranks.waits_seen import who_waits_most
from findwall.readers import open_run
from findwall.readers.rank_summaries import is_beside_its_trace, write_summary
from findwall.readers.reader import Progress
from findwall.readers.remote_paths import place
from findwall.readers.run_folder import is_run_folder, rank_folders

REFUSED_NAMED = 5  # of files that could not be read, one note each


def open_many(
    paths: list[Path],
    progress: Progress | None = None,
    max_memory: int | None = None,
    ray: str | None = None,
) -> Run | None:
    """The run of many ranks; None where there are few, or where they do not say which ranks they are.

    `ray`: the address of a cluster to reduce them on, however few.
    """
    if all(is_run_folder(path) for path in paths):
        return open_job(paths, progress, max_memory)
    files, least = files_of(paths), MANY_RANKS if ray is None else 2
    if len(files) < least:
        return None
    return run_of(paths, reduce_files(files, progress, ray), max_memory, least)


def reduce_files(files: list[Path], progress: Progress | None, ray: str | None) -> list[Reduced]:
    """Each file's summary, or why there is none: by this machine's cores, or on a cluster."""
    if ray is None:
        return list(reduce_all(files, worker_count(), progress))
    from findwall.ranks.reduced.ray_mapping import reduce_on_ray  # no other way needs it

    found = list(reduce_on_ray(files, ray, progress))
    if not any(one.raw for one in found) and any(one.refused for one in found):
        reason = next(one.refused for one in found if one.refused)
        raise InputError(reason, "Each machine of the cluster needs findwall, and must see these files.")
    return found


def files_of(paths: list[Path]) -> list[Path]:
    """The files that these paths are or hold, as deep as the folders of ranks in them."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        if is_run_folder(path):
            found += rank_folders(path).values()
            continue
        inner = sorted(path.iterdir())
        files = [one for one in inner if one.is_file()]
        if not files:
            folders = [one for one in inner if one.is_dir()]
            files = [one for folder in folders for one in sorted(folder.iterdir()) if one.is_file()]
        found += [one for one in files if not is_beside_its_trace(one)]
    return found


def run_of(
    paths: list[Path], found: list[Reduced], max_memory: int | None, least: int = MANY_RANKS
) -> Run | None:
    made = [(one.path, summary) for one in found if (summary := one.summary) is not None]
    summaries = [summary for _, summary in made]
    if len(made) < least or any(one.rank is None or one.world_size is None for one in summaries):
        return None
    _refuse_strangers(summaries)
    at = who_waits_most(summaries)
    whole = open_run([place(made[at][0])], max_memory=max_memory)
    others = tuple(
        Rank(one.rank or 0, device_name=one.device_name, summary=one)
        for place, one in enumerate(summaries)
        if place != at
    )
    speaks = replace(whole.first, number=summaries[at].rank or 0)
    ranks = (speaks, *sorted(others, key=lambda rank: rank.number))
    told = tuple(str(path) for path in paths)
    return replace(whole, paths=told, ranks=ranks, notes=_notes(found, summaries))


def _refuse_strangers(summaries: list[RankSummary]) -> None:
    numbers, worlds = [one.rank for one in summaries], {one.world_size for one in summaries}
    reason = ""
    if len(worlds) > 1:
        sizes = " and of ".join(str(size) for size in sorted(size for size in worlds if size is not None))
        reason = f"they say they are of {sizes} ranks"
    elif len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        reason = f"several say they are rank {twice}"
    if reason:
        raise InputError(f"These traces are not ranks of one job: {reason}.", "Give those of one job.")


def _notes(found: list[Reduced], summaries: list[RankSummary]) -> tuple[str, ...]:
    refused = [one.refused for one in found if one.refused]
    notes = [f"Left out: {reason}" for reason in refused[:REFUSED_NAMED]]
    if len(refused) > REFUSED_NAMED:
        notes.append(f"{len(refused) - REFUSED_NAMED} more files could not be read.")
    world = max(one.world_size or 0 for one in summaries)
    if len(summaries) < world:
        notes.append(f"{len(summaries)} of {world} ranks are here.")
    return tuple(notes)


def write_summaries(
    paths: list[Path], folder: Path, progress: Progress | None = None, ray: str | None = None
) -> tuple[list[Path], list[str]]:
    """Each rank's summary into a file of its own: these, and what could not be read."""
    found = reduce_files(files_of(paths), progress, ray)
    refused = [one.refused for one in found if one.refused]
    written = [
        write_summary(summary, folder, at)
        for at, one in enumerate(found)
        if (summary := one.summary) is not None
    ]
    if not written:
        reason = refused[0] if refused else "no trace was found."
        raise InputError(f"Nothing could be summarised: {reason}", "Give traces of torch.profiler.")
    return written, refused
