"""A host that gets ahead while its device waits: what it did meanwhile is needed again without the wait."""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import EMPTY, union
from findwall.ranks.reduced.host_paths import HostPaths, host_paths
from findwall.ranks.reduced.own_progress import OwnClock

US = 1_000


def paths(issued_us: list[int], *held_us: tuple[int, int]) -> HostPaths:
    """A rank that waits from 10 to 60 us for its first communication and is ready for its second at 70: work
    of 10 us lies before each."""
    begin = np.array([0, 10, 60, 70]) * US
    work = union(np.array([0, 60]) * US, np.array([10, 70]) * US)
    own = OwnClock(0, union(np.array([10 * US]), np.array([60 * US])))
    calls = union(*(np.array(held_us).T * US)) if held_us else EMPTY
    return host_paths(own, calls, work, np.array(issued_us) * US, begin, np.array([1, 3]))


def test_a_host_that_was_far_ahead_needs_nothing_again() -> None:
    found = paths([0, 1, 2, 3])
    assert found.hosted.tolist() == [10 * US, 20 * US]  # as the device takes by itself


def test_a_host_that_issued_the_work_late_in_the_wait_needs_that_time_again() -> None:
    found = paths([0, 1, 45, 46])
    assert found.hosted[1] == 55 * US  # the work was issued at 45 and takes 10


def test_a_host_that_was_held_by_the_wait_got_nothing_done_in_it() -> None:
    found = paths([0, 1, 61, 62], (5, 60))
    assert found.since[1] == 10 * US and found.hosted[1] == 11 * US
    assert found.held[1] == 10 * US  # as the device takes by itself
    assert found.held[0] < 0


def test_a_host_that_worked_in_the_wait_until_it_was_held_needs_that_too() -> None:
    assert paths([0, 1, 61, 62], (50, 60)).held[1] == 50 * US
