"""Of a request for memory that failed: the lines that held most, and the first change that would fit."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.examine.memory_rows import fits, line_rows, rung_row
from findwall.fixes import memory_edits
from findwall.memory.batch_growth import largest_batch
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_ladder import Rung, ladder
from findwall.memory.told_step import MOST_GIB, told_steps
from findwall.model.answers.memory_answer import MemoryRung, OutOfMemory
from findwall.model.catalogue import NEARLY_ALL
from findwall.model.claims import Claim, Figure, Range, known, lines
from findwall.model.measured_run import Rank
from findwall.units import GIB

LINES_TOLD = 3
BY_SIZE = ("size", "limit", "unknown")  # causes that a smaller step takes away


def looked_into(rank: Rank, recorded: DeviceMemoryFacts | None) -> OutOfMemory | None:
    """What failed, with what was recorded before: of the steps up to then, or of earlier ones."""
    oom = rank.oom
    if oom is None:
        return None
    oom = replace(oom, lines=line_rows(recorded)[:LINES_TOLD] if recorded is not None else [])
    steps = told_steps(oom, rank.failed_model) if rank.failed_model is not None else ()
    if not steps or oom.cause not in BY_SIZE:
        return oom
    peaks = [one.peak_bytes for one in steps]
    if oom.room_gib is not None and max(peaks) / GIB <= oom.room_gib:
        return oom  # it did not fit: what is known of the step is not all
    needs = Range(min(peaks) / GIB, sum(peaks) / len(peaks) / GIB, max(peaks) / GIB)
    room = None if oom.room_gib is None else int(min(max(oom.room_gib, 0.0), MOST_GIB) * GIB)
    rung = _first(steps, recorded, room)
    # What libraries take of a host as they are loaded counts as activations, and no batch makes it less.
    sure = room if room is None or not oom.on_host else int(NEARLY_ALL * room)
    largest = None if sure is None else min(largest_batch(one, sure) for one in steps)
    return replace(oom, needs_gib=needs, rung=rung, largest_batch=largest)


def _first(
    steps: tuple[DeviceMemoryFacts, ...], recorded: DeviceMemoryFacts | None, room: int | None
) -> MemoryRung | None:
    """The first that surely fits, else the first that may."""
    peak = sum(one.peak_bytes for one in steps) // len(steps)
    told = [(fits(steps[0], one, room), one) for one in rungs_of(steps, recorded)]
    chosen = next((one for surely, one in told if surely), None)
    chosen = chosen or next((one for may, one in told if may is None), None)
    return None if chosen is None else rung_row(steps[0], chosen, room, peak)


def rungs_of(steps: tuple[DeviceMemoryFacts, ...], recorded: DeviceMemoryFacts | None) -> list[Rung]:
    """The rungs of every such step as one, in the order of the first."""
    edits = memory_edits()
    found = [{one.fix: one for one in ladder(step, edits, recorded)} for step in steps]
    rungs = []
    for fix in found[0]:
        mine = [one[fix] for one in found if fix in one]
        if len(mine) == len(steps):
            low, high = min(one.low for one in mine), max(one.high for one in mine)
            rungs.append(replace(mine[0], low=low, mid=sum(one.mid for one in mine) // len(mine), high=high))
    return rungs


def told_of(oom: OutOfMemory, is_recorded: bool = False) -> list[Claim]:
    """What is said of it beside who asked for how much. `is_recorded`: what the allocator did, somewhere."""
    unknown = not (is_recorded or oom.lines or oom.on_host) and oom.cause in BY_SIZE
    found = [Claim("memory-helps/record")] if unknown else []
    if oom.lines:
        placed = [row for row in oom.lines if row.line is not None]
        parts = [
            Claim("memory-failed/line", {"line_gib": row.gib, "kind": row.kind}, places=lines(row.line))
            for row in placed
        ]
        found += [Claim("memory-failed/lines", parts=parts)] if parts else []
    if oom.needs_gib is None:
        return found
    figures: dict[str, Figure] = {
        "low_gib": oom.needs_gib.low,
        "high_gib": oom.needs_gib.high,
        "room_gib": oom.room_gib,
        "batch_share": oom.largest_batch if (oom.largest_batch or 1.0) < 1.0 else None,
    }
    found.append(Claim("memory-failed/needs", figures))
    if oom.rung is None:
        return [*found, Claim("memory-helps/none-fits")]
    surely = "first-fit" if oom.rung.fits else "may-fit"
    parts = [oom.rung.claim] if oom.rung.claim is not None else []
    return [*found, Claim(f"memory-helps/{surely}", {}, known(patch=oom.rung.patch or None), parts=parts)]
