"""A verdict that came too early: the job is measured again when it has set itself up.

Where the steps that were measured still set something up, no wall is named. The steps after that are looked
at in blocks of as many as were timed: a block that takes less than half as long is of a job that has settled.
That is waited for only for a while, and a job that is to be stopped runs on no longer.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from findwall.agent.membership import Membership
from findwall.agent.options import Options
from findwall.model.catalogue import WORTH_IT
from findwall.model.kinds import MUCH_FASTER
from findwall.model.measurement import DIAGNOSIS_FILE, Later
from findwall.units import NS_PER_S

TIMES = 2  # a job that goes on changing its ways is not measured for ever
# Chosen by hand, not calibrated.
STOPS_AFTER_NS = 45 * NS_PER_S  # a job that is to be stopped waits no longer to become faster
WATCHED_NS = 180 * NS_PER_S  # nor does another: then a model that was wrapped to see its calls is left alone
SAID = "the job still set itself up; it is measured again if its steps become faster"
FASTER = "its steps take less than half as long by now"
ENDED_BEFORE = f"{FASTER}, and the job ended before it could be measured again"


class _Wall(msgspec.Struct):
    too_early: bool = False


class _Document(msgspec.Struct):
    """What is asked of it."""

    wall: _Wall = msgspec.field(default_factory=_Wall)


class Again:
    """How often a measurement may yet begin anew, and whether this is the moment."""

    def __init__(self, options: Options, rank: Membership) -> None:
        self._left = TIMES if rank.world_size == 1 else 0  # several ranks would have to agree
        self._decides = options.wait is None  # else somebody has said when to begin
        self.waits_ns = STOPS_AFTER_NS if options.stop else WATCHED_NS

    @property
    def is_possible(self) -> bool:
        return self._left > 0

    @property
    def may_come_later(self) -> bool:
        """Whether to look on at a job that has been measured."""
        return self._left > 0 and self._decides

    def use(self) -> None:
        self._left -= 1

    def give_up(self) -> None:
        self._decides = False

    def has_settled(self, timed_ns: float, now_ns: float) -> bool:
        """Whether the mean step has become so much shorter."""
        return self.may_come_later and now_ns < MUCH_FASTER * timed_ns


def came_too_early(folder: Path | None) -> bool:
    """Whether the verdict in this folder is none because the job still set itself up."""
    if folder is None:
        return False
    try:
        document = msgspec.json.decode((folder / DIAGNOSIS_FILE).read_bytes(), type=_Document)
    except (OSError, msgspec.MsgspecError):
        return False
    return document.wall.too_early


def change_the_mean(later: Later, timed_ns: float, usual_ns: float) -> bool:
    """Whether steps that came later change what was said of those that were timed: some take longer than is
    known of, or all have become much faster."""
    added = sum(later.slow_ns) - len(later.slow_ns) * usual_ns
    known = max(timed_ns - usual_ns, 0.0) * later.steps
    return added - known >= WORTH_IT * later.ns or later.ns < MUCH_FASTER * timed_ns * later.steps
