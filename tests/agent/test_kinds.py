"""Kinds of steps from their times alone, and the window that holds one of each."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from examples import drawn
from findwall.agent.timing.step_kinds import Kind, Limits, find_kinds, labels, plan_window, told_by
from findwall.agent.tracing.traceplan import labels_of_traced

MS = 1_000_000


def steps(count: int, usual: int = 20 * MS, **every: int) -> list[int]:
    """`x480_16=3`: every 16th step, from the third on, takes 480 ms."""
    times = [usual + (row * 7919) % 400_000 for row in range(count)]
    for name, first in every.items():
        length, distance = (int(part) for part in name[1:].split("_"))
        for row in range(first, count, distance):
            times[row] = length * MS
    return times


def limits(most: int, latest: int, ns: float = 1e12) -> Limits:
    return Limits(most, latest, ns, 20 * MS)


def test_steps_that_are_alike_are_of_one_kind() -> None:
    assert find_kinds(steps(60)) == []
    assert labels([], 60) == []


def test_every_sixteenth_step_is_a_kind() -> None:
    (kind,) = find_kinds(steps(64, x480_16=3))
    assert (kind.name, kind.every, kind.rows) == ("slow", 16, (3, 19, 35, 51))
    assert kind.mean == 480 * MS
    assert labels([kind], 64).count("slow") == 4
    assert kind.next_after(52) == 67
    assert kind.next_after(67) == 67
    assert kind.next_after(68) == 83


def test_a_step_that_saves_also_logs() -> None:
    shorter, longer = find_kinds(steps(100, x60_10=9, x900_50=49))
    assert (shorter.every, longer.rows) == (10, (49, 99))
    assert shorter.name == "slow-1"
    assert not set(shorter.rows) & set(longer.rows)


def test_two_that_stand_out_tell_no_distance_yet() -> None:
    assert told_by(steps(40, x480_16=3)[:25]) is None
    assert told_by(steps(64, x480_16=3)) is not None
    assert told_by(steps(64)) == []


def test_a_hiccup_that_adds_little_is_no_kind() -> None:
    times = steps(200)
    times[120] = 60 * MS
    assert find_kinds(times) == []


def test_lengths_that_merely_vary_are_no_kinds() -> None:
    times = [(20 + (row * 37) % 60) * MS for row in range(80)]
    assert find_kinds(times) == []


def test_the_window_holds_one_step_of_each_kind() -> None:
    kinds = find_kinds(steps(100, x60_10=9, x900_50=49) + steps(60, x60_10=9, x900_50=49))
    window = plan_window(kinds, 163, 3, limits(24, 400))
    held = range(window.first, window.first + window.steps)
    assert 199 in held
    assert 189 in held
    assert held.stop > 200  # the last traced step is not counted


def test_what_comes_too_late_is_not_waited_for() -> None:
    kinds = find_kinds(steps(64, x480_16=3))
    assert plan_window(kinds, 70, 3, limits(24, 75)).steps == 3
    assert plan_window(kinds, 70, 3, limits(24, 90)).first == 82


def test_what_takes_too_long_is_not_traced() -> None:
    kinds = find_kinds(steps(64, x480_16=3))
    assert plan_window(kinds, 70, 3, limits(24, 400, 400 * MS)).steps == 3


def test_of_a_kind_seen_twice_the_next_one_is_guessed() -> None:
    (kind,) = find_kinds(steps(12, x10000_10=0))
    assert (kind.every, kind.distance) == (None, 10)
    window = plan_window([kind], 14, 3, limits(24, 400))
    assert 20 in range(window.first, window.first + window.steps - 1)


@drawn(100)
@given(
    period=st.integers(2, 30),
    first=st.integers(0, 29),
    ratio=st.floats(1.6, 60.0),
    usual=st.integers(200_000, 900_000_000),
    noise=st.lists(st.floats(-0.02, 0.02), min_size=150, max_size=150),
)
def test_a_drawn_period_is_found(
    period: int, first: int, ratio: float, usual: int, noise: list[float]
) -> None:
    first %= period
    assume((ratio - 1) / period / (1 + (ratio - 1) / period) > 0.06)
    times = [int(usual * (1 + one)) for one in noise]
    for row in range(first, len(times), period):
        times[row] = int(times[row] * ratio)
    kinds = find_kinds(times)
    if period == 2:  # half of the steps: which of the two is the usual one is a matter of taste
        return
    (kind,) = kinds
    assert kind.every == period
    assert kind.rows == tuple(range(first, len(times), period))
    window = plan_window(kinds, 200, 3, limits(64, 10_000))
    counted = range(window.first, window.first + window.steps - 1)
    assert any(row % period == first for row in counted)
    assert window.first >= 200


@drawn(100)
@given(st.lists(st.integers(1, 10**10), max_size=80))
def test_any_times_give_kinds_that_hold_together(times: list[int]) -> None:
    kinds = find_kinds(times)
    rows = [row for kind in kinds for row in kind.rows]
    assert len(rows) == len(set(rows)) < max(len(times), 1)
    assert all(0 <= row < len(times) for row in rows)
    assert len({kind.name for kind in kinds}) == len(kinds)
    assert labels(kinds, len(times)).count("usual") == (len(times) - len(rows) if kinds else 0)


def test_traced_steps_are_told_apart_though_all_are_stretched() -> None:
    kinds = [Kind("slow", (3, 19), 480.0 * MS, 0.5, 16)]
    lengths = [33 * MS, 530 * MS, 31 * MS, 35 * MS]
    for first in (34, 40):  # where it is due, and where it is not
        assert labels_of_traced(kinds, 20 * MS, lengths, first) == ["usual", "slow", "usual", "usual"]
    assert labels_of_traced([], 20 * MS, lengths, 0) == []


def test_a_traced_wait_is_not_stretched_and_known_by_its_place() -> None:
    """Workers that start again take as long under the profiler; the step's own launches take three times."""
    kinds = [
        Kind("slow-1", (1, 32), 240.0 * MS, 0.02, None),
        Kind("slow-2", (16, 96), 700.0 * MS, 0.1, None),
        Kind("slow-3", (15, 31, 47, 63), 2300.0 * MS, 0.7, 16),
    ]
    lengths = [62 * MS, 2400 * MS, 690 * MS, 60 * MS, 58 * MS, 61 * MS]
    expected = ["usual", "slow-3", "slow-2", "usual", "usual", "usual"]
    assert labels_of_traced(kinds, 20 * MS, lengths, 78) == expected
    assert labels_of_traced(kinds, 20 * MS, lengths, 80) == expected
    assert labels_of_traced(kinds, 20 * MS, [60 * MS] * 4, 78) == ["usual"] * 4
