"""What the ranks of a job tell each other through the run folder, once each has measured what it measures."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from findwall.model.applied import APPLIED_FILE, Applied, AppliedFix
from findwall.model.measurement import MEASUREMENT_FILE, Measurement

LOOK_S = 0.2  # between two looks at the ranks' files. Chosen by hand.


class Told(msgspec.Struct, frozen=True):
    """One rank: its measurement, and what the fixes made in it did."""

    measurement: Measurement
    applied: Applied = Applied()


def told_by(folder: Path, rank: int) -> Told | None:
    """None while it has not told all. A rank writes what its fixes did before its last measurement."""
    place = folder / f"rank{rank}"
    try:
        measured = msgspec.json.decode((place / MEASUREMENT_FILE).read_bytes(), type=Measurement)
        if not measured.final:
            return None
        applied = place / APPLIED_FILE
        done = msgspec.json.decode(applied.read_bytes(), type=Applied) if applied.exists() else Applied()
    except (OSError, msgspec.MsgspecError):
        return None
    return Told(measured, done)


def told_by_others(folder: Path, world_size: int, wait_s: float = 0.0) -> list[Told] | None:
    """What all ranks but the first tell; None: by then, some have not told all."""
    until = time.monotonic() + wait_s
    while True:
        told = [told_by(folder, rank) for rank in range(1, world_size)]
        found = [one for one in told if one is not None]
        if len(found) == len(told):
            return found
        if time.monotonic() >= until:
            return None
        time.sleep(LOOK_S)


def applied_in_all(ranks: list[Applied]) -> Applied:
    """A fix that one rank could not make is not made in the job: ranks wait for each other, and its step
    would be that of the rank without it. One that some had no use for, and did not fail in (only the first
    clears its cache), took effect, and says in how many."""
    if len(ranks) == 1:
        return ranks[0]
    names = dict.fromkeys(name for one in ranks for name in one.fixes)
    together = {name: _in_all([one.fixes.get(name) for one in ranks]) for name in names}
    cannot = list(dict.fromkeys(name for one in ranks for name in one.cannot))
    return msgspec.structs.replace(ranks[0], fixes=together, cannot=cannot)


def _in_all(told: list[AppliedFix | None]) -> AppliedFix:
    for rank, one in enumerate(told):
        trouble = "it told nothing of it" if one is None else one.trouble
        if trouble:
            return AppliedFix(trouble=f"in rank {rank}: {trouble}")
    seen = [one.seen for one in told if one is not None and one.seen]
    if not seen:
        return AppliedFix()
    return AppliedFix(
        seen[0] if len(seen) == len(told) else f"in {len(seen)} of {len(told)} ranks: {seen[0]}"
    )
