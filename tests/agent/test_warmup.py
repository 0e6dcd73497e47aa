"""Warm-up ends by a test: level, slope, no compilation, no growth."""

from __future__ import annotations

import random

from findwall.agent.timing.warmup import GIVE_UP_NS, WarmupTest, level_and_flat, slope

MS = 1_000_000


def feed(
    times_ms: list[float], compiles: list[int] | None = None, reserved: list[int] | None = None
) -> int | None:
    """The step at which the test says settled."""
    test = WarmupTest(0)
    now = 0
    seen: list[float] = []
    for index, time in enumerate(times_ms):
        now += int(time * MS)
        seen.append(time * MS)
        compiled = compiles[index] if compiles else 0
        if test.step(now, seen, compiled, reserved[index] if reserved else 0):
            return index + 1
    return None


def test_a_steady_job_settles_soon():
    assert feed([100.0] * 40) == 8


def test_slow_first_steps_are_warm_up():
    settled = feed([4000, 900, 300, 120, 104, 101, *([100.0] * 30)])
    assert settled is not None and settled >= 9


def test_a_drifting_job_has_not_settled():
    assert feed([100.0 * 0.9**i for i in range(20)]) is None


def test_noise_is_not_a_trend():
    noise = random.Random(1)
    settled = feed([100 * (1 + 0.1 * noise.gauss(0, 1)) for _ in range(60)])
    assert settled is not None and settled < 30


def test_a_periodic_pause_does_not_keep_it_waiting():
    assert feed([100.0, 100.0, 100.0, 100.0, 400.0] * 12) is not None


def test_compilation_and_growth_restart_the_wait():
    quiet = [0] * 40
    compiling = quiet.copy()
    compiling[12] = 1
    assert feed([10.0] * 11 + [100.0] * 29, compiles=compiling) == 13 + 8
    growing = [min(i, 15) * 1000 for i in range(40)]
    settled = feed([100.0] * 40, reserved=growing)
    assert settled is not None and settled >= 15 + 8


def test_fast_steps_must_also_last_a_while():
    settled = feed([1.0] * 900)
    assert settled is not None and settled >= 500


def test_it_gives_up_on_a_job_that_never_settles():
    test = WarmupTest(0)
    answers = [test.step(i * 10_000 * MS, [2.0**i], 0, 0) for i in range(1, 13)]
    assert answers[-1] is False
    assert 12 * 10_000 * MS > GIVE_UP_NS


def test_a_job_that_compiles_in_every_step_is_taken_as_it_is():
    test = WarmupTest(0)
    answers = [test.step(i * 5_000 * MS, [5_000.0 * MS] * i, 1, 0) for i in range(1, 6)]
    assert answers == [None, None, None, None, False]
    assert test.reason == "compiling"


def test_slope_ignores_an_outlier():
    assert slope([1, 1, 1, 50, 1, 1, 1]) == 0
    assert not level_and_flat([1.0] * 7)
