"""What samples prove, held against drawn samples of known truth: coverage, false alarms, power, symmetry."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.errors import InputError
from findwall.trial.statistics import (
    LEAST_DIFFERENCE,
    Comparison,
    noise_floor,
    prove,
    student,
    verdict,
)

DRAWS = 2000
STEPS_MS = st.lists(st.floats(1.0, 1.5), min_size=3, max_size=10)


def drawn(rng: np.random.Generator, count: int, noise: float, step: float = 10.0) -> list[float]:
    return [float(step * exp(noise * z)) for z in rng.standard_normal(count)]


def with_hiccups(rng: np.random.Generator, count: int, noise: float) -> list[float]:
    """One process in ten is 5 % slower: a neighbour, a clock that went down."""
    return [one * (1.05 if rng.random() < 0.1 else 1.0) for one in drawn(rng, count, noise)]


@pytest.mark.parametrize(
    ("chance", "freedom", "known"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 4, 2.7764), (0.995, 8, 3.3554), (0.975, 200, 1.9719)],
)
def test_quantiles_are_those_of_the_tables(chance: float, freedom: float, known: float) -> None:
    assert student(chance, freedom) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize(("count", "louder"), [(3, 1.0), (3, 3.0), (10, 1.0), (10, 3.0)])
def test_the_interval_holds_the_truth_as_often_as_it_says(count: int, louder: float) -> None:
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(DRAWS):
        found = prove(drawn(rng, count, 0.02), drawn(rng, count, 0.02 * louder, step=8.0))
        assert found is not None
        held += found.low <= 10 / 8 <= found.high
    assert held / DRAWS >= 0.98
    assert held / DRAWS <= 0.9995  # nor is it so wide that it says nothing


def told(base: list[float], again: list[float], other: list[float]) -> str:
    """As a trial is judged: A/A gives the floor, and all plain processes are the base."""
    return verdict(prove(base + again, other), noise_floor(base, again))


@pytest.mark.parametrize(("count", "noise"), [(3, 0.002), (3, 0.1), (5, 0.02), (10, 0.002), (10, 0.1)])
def test_an_arm_against_itself_shows_no_difference(count: int, noise: float) -> None:
    rng = np.random.default_rng(count)
    samples = [[drawn(rng, count, noise) for _ in range(3)] for _ in range(DRAWS)]
    alarms = sum(told(*three) != "no-difference" for three in samples)
    assert alarms / DRAWS <= (0.002 if noise < 0.01 else 0.03)


def test_hiccups_make_no_difference_of_an_arm_against_itself() -> None:
    rng = np.random.default_rng(1)
    samples = [[with_hiccups(rng, 4, 0.005) for _ in range(3)] for _ in range(DRAWS)]
    assert sum(told(*three) != "no-difference" for three in samples) / DRAWS <= 0.03


@pytest.mark.parametrize(("gain", "noise", "count"), [(0.10, 0.01, 3), (0.10, 0.02, 5), (0.03, 0.008, 5)])
def test_a_planted_gain_is_found(gain: float, noise: float, count: int) -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(DRAWS):
        base, again = drawn(rng, count, noise), drawn(rng, count, noise)
        found += told(base, again, drawn(rng, count, noise, step=10 / (1 + gain))) == "faster"
    assert found / DRAWS >= 0.95


@given(STEPS_MS, STEPS_MS)
def test_swapping_the_arms_turns_the_answer_round(one: list[float], other: list[float]) -> None:
    there, back = prove(one, other), prove(other, one)
    assert there is not None and back is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))
    turned = {"faster": "slower", "slower": "faster", "no-difference": "no-difference"}
    assert verdict(back, 0.02) == turned[verdict(there, 0.02)]


@given(STEPS_MS, STEPS_MS, st.floats(1e-3, 1e4))
def test_the_unit_of_time_does_not_matter(one: list[float], other: list[float], scale: float) -> None:
    found = prove(one, other)
    scaled = prove([scale * value for value in one], [scale * value for value in other])
    assert found is not None and scaled is not None
    assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx((found.ratio, found.low, found.high))


@given(STEPS_MS, STEPS_MS)
def test_the_ratio_is_inside_its_interval_which_is_no_point(one: list[float], other: list[float]) -> None:
    found = prove(one, other)
    assert found is not None
    assert found.low <= found.ratio <= found.high
    assert log(found.high / found.low) > 1e-3
    assert found.samples == (len(one), len(other))


def test_equal_samples_prove_little_more_than_the_clock() -> None:
    found = prove([5.0, 5.0, 5.0], [5.0, 5.0, 5.0])
    assert found is not None and found.low < 1 < found.high
    assert verdict(found) == "no-difference"


def test_two_samples_are_lent_a_spread_and_three_stand_by_themselves() -> None:
    far = prove([60.0, 60.0], [27.0, 32.0])
    assert far is not None and far.low > 1.05
    near = prove([60.0, 60.1, 60.0, 59.9], [57.0, 57.4])  # whoever is noisier may agree by chance
    assert near is not None and near.low < 1.0
    there, back = (
        prove([60.0, 60.1, 59.9], [57.0, 57.1, 57.05]),
        prove([57.0, 57.1, 57.05], [60.0, 60.1, 59.9]),
    )
    assert there is not None and back is not None and there.low == pytest.approx(1 / back.high)


def test_one_sample_a_side_proves_nothing() -> None:
    assert prove([10.0], [5.0, 5.0]) is None
    assert verdict(None) == "no-difference"
    assert noise_floor([10.0], [5.0]) == LEAST_DIFFERENCE


def test_a_difference_below_the_floor_is_none() -> None:
    proven = Comparison(1.04, 1.03, 1.05, (3, 3))
    assert verdict(proven) == "faster"
    assert verdict(proven, floor=0.06) == "no-difference"


def test_a_step_of_no_time_is_refused() -> None:
    with pytest.raises(InputError):
        prove([0.0, 1.0], [1.0, 1.0])
