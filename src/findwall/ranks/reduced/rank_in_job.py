"""A rank's summary, made of its trace by a process of its own beside the job: nobody else need read that.

Run as a module it does that for one rank's folder, packs the trace, and says last that it is done: by writing
the summary, also where there is nothing to say but why.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from findwall.agent.ending.storage import pack, put_in_place
from findwall.errors import InputError
from findwall.files import write_atomically
from findwall.model.measurement import SUMMARY_FILE
from findwall.model.summaries.rank_summary import NO_MESSAGES, LineSeen, RankSummary, encode
from findwall.ranks.reduced.summarising import summarise_rows
from findwall.readers.run_folder import read_rank
from findwall.step.cores import cores_as_device
from findwall.step.step_window import survey

NICENESS = 19  # behind all that the job and its verdict do


def summary_of(folder: Path) -> RankSummary:
    """As the analysis of the whole job would make it. InputError where it has nothing to be made of."""
    rank, measured = read_rank(folder)
    if rank.timeline is None:
        raise InputError(rank.notes[-1] if rank.notes else f"{folder} holds no trace.")
    on_cores = rank.device_kind == "cpu"
    timeline = cores_as_device(rank.timeline) if on_cores else rank.timeline
    whole = survey(timeline, on_cores, rank.evaluated, warm=True)
    if whole.steps.device < 0 or whole.steps.count == 0:
        raise InputError(f"The trace of rank {rank.number} has no whole step in which its device works.")
    lines = tuple(LineSeen(line.place, line.function, line.share) for line in rank.host_lines)
    made = summarise_rows(whole.timeline, rank.number, lines)[0]
    name = rank.device_name or made.device_name
    here = {"node": rank.node, "in_line_ns": rank.in_line_ns}
    return replace(made, world_size=measured.world_size, device_name=name, **here)


def without_trace(number: int, why: str) -> RankSummary:
    return RankSummary(NO_MESSAGES, (), number, notes=(why,))


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    os.nice(NICENESS)
    os.umask(0o077)
    try:
        made = summary_of(folder)
    except InputError as error:
        made = without_trace(int(arguments[1]), str(error))
    except Exception as error:  # noqa: BLE001 - fail open: the other ranks shall not wait for this one
        made = without_trace(int(arguments[1]), f"it could not be reduced ({type(error).__name__}: {error})")
    put_in_place(pack(folder))
    write_atomically(folder / SUMMARY_FILE, encode(replace(made, made_s=time.process_time())), private=True)


if __name__ == "__main__":
    main(sys.argv[1:])
