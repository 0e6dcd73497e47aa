"""How far a rank's host gets by itself, whatever its device waits for.

While the device waits for others the host goes on until a call holds it, and what it issues meanwhile runs
later without a gap. Where nobody is waited for any more that time is needed again. So a communication is
ready by two ways: the device's, and that of the host since a call last held it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.intervals import I64, Intervals
from findwall.model.summaries.rank_summary import GRAIN_NS, grained
from findwall.ranks.reduced.own_progress import OwnClock

NEVER = -GRAIN_NS


class HostPaths(msgspec.Struct, frozen=True):
    """Of each communication, ns."""

    since: I64  # own progress when a call last held the host
    hosted: (
        I64  # from there until its input was there, as the host issued what it needs and the device ran it
    )
    held: I64  # from the hold that the communication before came after to this one, likewise; NEVER: the same


def host_paths(
    own: OwnClock, calls: Intervals, work: Intervals, issued: I64, begin: I64, message: I64
) -> HostPaths:
    """`calls` held the host. `issued`, `begin`: of the device's work and communications, in the order of
    issue; `message`: which of these are communications, in the order they are kept in."""
    freed = np.append(own.origin, calls.end)
    part = np.maximum(np.searchsorted(freed, issued, side="right") - 1, 0)
    ran = work.covered_before(begin)
    hosted = _highest_in(part, issued - ran) + ran - freed[part]
    since = own.at(freed)
    stretch = np.maximum(np.diff(since), calls.start - freed[:-1])
    until = np.cumsum(np.append(0, stretch))
    of = np.maximum.accumulate(part[message])
    before = np.append(0, of[:-1])
    held = np.where(of > before, until[of] - until[before], NEVER)
    hosted = hosted[message] + since[part[message]] - since[of]
    return HostPaths(grained(since[of]), grained(hosted), grained(held))


def _highest_in(part: I64, values: I64) -> I64:
    """The highest so far in each part; `part` rises."""
    apart = int(np.ptp(values)) + 1 if len(values) else 0
    found: I64 = np.maximum.accumulate(values + part * apart) - part * apart
    return found
