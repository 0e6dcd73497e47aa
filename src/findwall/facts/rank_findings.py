"""What the ranks of a job say together: the collectives that all of them have, and who came late."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64, I64
from findwall.units import ms


class RankFindings(msgspec.Struct, frozen=True):
    """Collectives seen on every rank. Columns: a rank each, in the order the ranks were given."""

    ranks: tuple[int, ...]  # their numbers
    rows: I64  # shape (collectives, ranks): device row on each rank
    duration: I64  # same shape
    late: int  # number of the rank that waits least
    late_count: int  # of the matched collectives: how often it joined last
    by_wait: tuple[tuple[int, float], ...]  # (rank, ms a step spent waiting for others), most first
    bus_rate: float | None = None  # bytes/s of large transfers without waiting
    by_host: bool = False  # `rows` are collectives of the host (gloo): waiting for them is idle time
    waited: I64 | None = None  # ns, same shape: until the last rank came; None: their clocks differ
    later: I64 | None = None  # ns, same shape: how much later than this rank the last one can have come

    @property
    def matched(self) -> int:
        return len(self.duration)

    @property
    def waiting(self) -> F64:
        """Share of each collective's time that is waiting, on each rank."""
        return self.waits / np.maximum(self.duration, 1)

    @property
    def waits(self) -> I64:
        """How long each rank waits in each collective: until the last one comes.

        Where clocks differ, what it lasts longer than on the rank where it is shortest.
        """
        if self.waited is not None:
            return self.waited
        longer: I64 = self.duration - self.duration.min(axis=1, keepdims=True)
        return longer if self.later is None else np.minimum(longer, self.later)

    @property
    def has_late_rank(self) -> bool:
        """Whether one rank joins most collectives last: a minority of them blames nobody."""
        return self.late_count > MAJORITY_SHARE * self.matched

    @property
    def transfer_ms(self) -> float:
        """Of all of these collectives, what none of the ranks can have waited."""
        return ms(float(self.duration.min(axis=1).sum()))
