"""Which steps of a long trace are looked at closely: a run of typical ones, as many as can be afforded.

Step times, device busy time and trace quality are of the whole file. The budget needs every op of a
step and its neighbours, and a hundred steps say no more about that than ten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.structure.links import Links, link_launches
from findwall.structure.steps import Steps, find_steps

# Events looked at closely: a trace of more is cut to typical steps, so that reading stays a matter of
# seconds.
CLOSE_LOOK_EVENTS = 50_000
FEWEST_STEPS_KEPT = 3  # so that one odd step does not speak for the job; chosen by hand


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole trace of a rank, as far as it is cheap to know."""

    timeline: Timeline
    links: Links
    steps: Steps


def survey(timeline: Timeline) -> Whole:
    links = link_launches(timeline)
    return Whole(timeline, links, find_steps(timeline, links))


def representative(whole: Whole) -> Timeline:
    """The timeline itself, or the part of it around a run of steps of about the mean length."""
    count, events = whole.steps.count, len(whole.timeline.events)
    if events <= CLOSE_LOOK_EVENTS or count <= FEWEST_STEPS_KEPT or whole.steps.found_by == "span":
        return whole.timeline
    keep = min(max(FEWEST_STEPS_KEPT, count * CLOSE_LOOK_EVENTS // events), count)
    if keep >= count:
        return whole.timeline
    lengths = whole.steps.lengths.astype(np.float64)
    means = np.convolve(lengths, np.ones(keep) / keep, mode="valid")
    first = int(np.argmin(np.abs(means - lengths.mean())))
    return _cut(whole, first, first + keep)


def _cut(whole: Whole, first: int, last: int) -> Timeline:
    """Rows launched in steps first to last, and the first kernels after them that close the last step."""
    events, steps = whole.timeline.events, whole.steps
    start, end = int(steps.host[first]), int(steps.host[min(last + 1, len(steps.host) - 1)])
    device = events.is_kind(*DEVICE_KINDS, Kind.DEVICE_ANNOTATION, Kind.SYNC)
    keep = ~device & (events.start >= start) & (events.start < end)
    of_row = steps.of_row
    keep |= device & (of_row >= first) & (of_row <= last)
    # Captured ops stand at no time: those of the graph launches kept.
    captured = events.kind == Kind.CAPTURED
    keep &= ~captured
    keep |= captured & np.isin(events.correlation, events.correlation[keep & device])
    return replace(whole.timeline, events=events.take(np.flatnonzero(keep)))
