"""Steps that were measured while a job still set itself up say little: it is measured again when it has.

After all was measured, the steps are looked at in blocks of as many as were timed. A block that takes less
than half as long is of another job than the one that was judged. A job that is to be stopped runs on for a
while if its verdict came too early.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import msgspec

from findwall.measure.membership import Membership
from findwall.measure.options import Options
from findwall.model.kinds import MUCH_FASTER
from findwall.model.measurement import DIAGNOSIS_FILE
from findwall.units import NS_PER_S, format_ms, ms

TIMES = 2  # a job that goes on changing its ways is not measured for ever
# Both chosen by hand, not calibrated.
STOPS_AFTER_NS = 45 * NS_PER_S  # a job that is to be stopped waits no longer to become faster
WATCHED_NS = 180 * NS_PER_S  # a model that was wrapped to see its calls is left alone after that


class _Wall(msgspec.Struct):
    too_early: bool = False


class _Document(msgspec.Struct):
    """What is asked of it."""

    wall: _Wall = msgspec.field(default_factory=_Wall)


class Again:
    """How often a measurement may yet begin anew, and whether this is the moment."""

    def __init__(self, options: Options, rank: Membership) -> None:
        alone = rank.world_size == 1  # several ranks would have to agree
        self._left = TIMES if alone else 0
        self._waits = options.wait is None  # else somebody has said when to begin
        self._since = 0

    @property
    def is_possible(self) -> bool:
        return self._left > 0

    @property
    def may_come_later(self) -> bool:
        """Whether to look on at a job that has been measured."""
        return self._left > 0 and self._waits

    def use(self) -> None:
        self._left -= 1

    def measured(self) -> None:
        """All was measured, just now."""
        self._since = perf_counter_ns()

    def is_another_job(self, timed_ns: float, now_ns: float) -> bool:
        """Whether the mean step has become so much shorter."""
        return self.may_come_later and now_ns < MUCH_FASTER * timed_ns

    @property
    def is_over(self) -> bool:
        """A job that is to be stopped has had its time."""
        return perf_counter_ns() - self._since > STOPS_AFTER_NS

    @property
    def is_tired(self) -> bool:
        return perf_counter_ns() - self._since > WATCHED_NS


def came_too_early(folder: Path | None) -> bool:
    """Whether the verdict in this folder is none because the job still set itself up."""
    if folder is None:
        return False
    try:
        document = msgspec.json.decode((folder / DIAGNOSIS_FILE).read_bytes(), type=_Document)
    except (OSError, msgspec.MsgspecError):
        return False
    return document.wall.too_early


def became_faster(timed_ns: float, now_ns: float) -> str:
    return (
        f"the step takes {format_ms(ms(now_ns))} now and took {format_ms(ms(timed_ns))} when it was measured"
    )
