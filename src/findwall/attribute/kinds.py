"""Kinds of steps: which of them were traced, and what each traced step counts for in the mean.

The mean step is one over all kinds, in the shares in which they came while steps were timed. A window of a
few steps holds one of a kind that comes every sixteenth time: it counts for a sixteenth. Of a kind that no
traced step is of, only its time is known.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.events import Timeline
from findwall.model.intervals import F64
from findwall.model.kinds import USUAL, StepKind
from findwall.model.run import Rank
from findwall.structure.queue import Queue
from findwall.structure.steps import step_numbers
from findwall.units import NS_PER_S


class KindsTraced(msgspec.Struct, frozen=True):
    """Of the counted steps: their shares of the mean; and the kinds that are not among them."""

    share: F64 | None  # None: all count the same
    missing: tuple[StepKind, ...]


def kinds_traced(rank: Rank, timeline: Timeline, queue: Queue) -> KindsTraced:
    """What the trace holds of the kinds of steps that were timed."""
    timed = rank.step_times
    if timed is None or timed.source != "measured":
        return KindsTraced(None, ())
    kinds = timed.kinds()
    if len(kinds) < 2:
        return KindsTraced(None, ())
    traced = traced_kinds(rank, timeline, queue)
    missing = tuple(kind for kind in kinds if kind.name not in traced)
    if len(set(traced)) < 2:
        return KindsTraced(None, missing)
    count = {name: traced.count(name) for name in traced}
    shares = {kind.name: kind.share for kind in kinds}
    share = np.array([shares.get(name, 0.0) / count[name] for name in traced])
    if not share.sum() > 0:
        return KindsTraced(None, missing)
    return KindsTraced(share / share.sum(), missing)


def traced_kinds(rank: Rank, timeline: Timeline, queue: Queue) -> list[str]:
    """The kind of each counted step."""
    found = kinds_found(rank, timeline)
    return [found[at] if at < len(found) else USUAL for at in queue.used.tolist()]


def kinds_found(rank: Rank, timeline: Timeline) -> list[str]:
    """The kind of each step that the trace marks, by the number it bears."""
    places = (step_numbers(timeline) - rank.first_traced).tolist() if rank.traced_kinds else []
    known = rank.traced_kinds
    return [known[place] if 0 <= place < len(known) else USUAL for place in places]


def beyond_usual_ns(rank: Rank, kinds: tuple[StepKind, ...]) -> float:
    """What steps of these kinds add to the mean step beyond usual ones."""
    timed = rank.step_times
    usual = next((kind for kind in timed.kinds() if kind.name == USUAL), None) if timed is not None else None
    if usual is None:
        return 0.0
    return sum(kind.share * max(kind.mean - usual.mean, 0.0) for kind in kinds) * NS_PER_S
