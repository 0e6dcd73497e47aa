"""Clocks of ranks: by common ends, or their own where ends are as far apart as processes wait for a core."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.model.summaries.rank_summary import COLUMNS, Label, Messages, RankSummary
from findwall.ranks.chance import chance_of
from findwall.ranks.played.all_rows import gather
from findwall.ranks.played.clocks import fit_clocks
from findwall.ranks.played.matching import match

STEPS, MS = 12, 1_000_000


def ranks(leaves_ns: float, apart_ns: tuple[int, ...] = (0, 0, 0, 0)) -> list[RankSummary]:
    """Four ranks that come within 5 ms of each other and leave within `leaves_ns` of the end."""
    chance, found = np.random.default_rng(3), []
    for rank, apart in enumerate(apart_ns):
        begin = np.arange(STEPS) * 20 * MS + chance.integers(0, 5 * MS, STEPS)
        end = np.arange(STEPS) * 20 * MS + 7 * MS + chance.integers(0, int(leaves_ns) + 1, STEPS)
        columns = dict.fromkeys(COLUMNS, np.zeros(STEPS, np.int64))
        columns |= {"step": np.arange(STEPS), "start": begin, "launched": begin, "end": end}
        columns |= {"joins": np.ones(STEPS, np.int64)}
        label = (Label("all_reduce", "world"),)
        found.append(RankSummary(Messages(**columns), label, rank, base_time_ns=apart, step_ns=20.0 * MS))
    return found


def test_ranks_that_leave_far_apart_keep_their_own_clocks() -> None:
    rows = gather(ranks(10 * MS))
    matched = match(rows)
    clocks = fit_clocks(rows, matched)
    assert matched.matched == len(rows) and not clocks.fitted
    assert (clocks.end == rows.end).all()


@pytest.mark.parametrize("apart", [30 * MS, 300 * MS])
def test_clocks_that_contradict_each_other_are_fitted(apart: int) -> None:
    rows = gather(ranks(1_000, (0, apart, -apart, 0)))
    matched = match(rows)
    clocks = fit_clocks(rows, matched)
    assert matched.matched == len(rows) and clocks.fitted
    assert clocks.residual_ns < 1_000


def test_one_odd_step_makes_nobody_late_and_nobody_less_surely_so() -> None:
    steady = np.array([3.0, 3.1, 2.9, 3.0, 3.05, 2.95, 3.0])
    odd = np.where(np.arange(7) == 2, 30.0, steady)
    assert chance_of(odd) < 1e-4
    assert chance_of(np.where(np.arange(7) == 2, 30.0, steady - 3.0)) > 0.05
    assert chance_of(np.array([1.0, np.nan])) == 1.0
