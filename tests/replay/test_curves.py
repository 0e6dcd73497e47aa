"""Curves: between two measured points in between, beyond them as at the end, a wider one where none fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.replay.curves import Curve, Curves, curves

US = 1_000.0
CURVE = Curve((1.0, 100.0), (0.2, 0.8))
MOST_REACHED = 1.6  # times a floor's speed: more would be a floor that is none
NAMES = sorted(curves().classes)


def few() -> Curves:
    wide, narrow = Curve((10.0,), (0.5,)), Curve((10.0,), (0.25,))
    return Curves("a GPU", "2.11", "2026-11-16", {"conv": wide, "conv/bf16": narrow}, {})


def test_a_measured_length_reaches_what_was_measured() -> None:
    np.testing.assert_allclose(CURVE.at(np.array([1.0, 100.0]) * US), [0.2, 0.8])


def test_between_two_lengths_it_is_in_between_by_their_logarithms() -> None:
    np.testing.assert_allclose(CURVE.at(np.array([10.0, np.sqrt(10.0)]) * US), [0.5, 0.35])


def test_beyond_what_was_measured_it_is_as_at_the_end() -> None:
    np.testing.assert_allclose(CURVE.at(np.array([0.0, 0.001, 1e9]) * US), [0.2, 0.2, 0.8])


def test_of_one_point_every_length_is_alike() -> None:
    np.testing.assert_allclose(Curve((5.0,), (0.3,)).at(np.array([0.0, 5.0, 1e6]) * US), 0.3)


@pytest.mark.parametrize(
    ("name", "factor"),
    [("conv/bf16", 4.0), ("conv/bf16/nhwc/forward/1x1", 4.0), ("conv/fp8/nhwc", 2.0), ("conv", 2.0)],
)
def test_without_a_curve_of_its_own_a_class_has_the_next_wider_one(name: str, factor: float) -> None:
    assert few().likely_ns(name, np.array([7.0 * US])).tolist() == [7.0 * US * factor]


@pytest.mark.parametrize("name", NAMES)
def test_every_measured_curve_is_sound(name: str) -> None:
    curve = curves().classes[name]
    assert len(curve.floor_us) == len(curve.reached) > 0
    assert curve.floor_us[0] > 0
    assert list(curve.floor_us) == sorted(set(curve.floor_us))
    assert all(0 < share <= MOST_REACHED for share in curve.reached)


def test_every_class_has_a_widest_curve_and_what_is_no_class_has_none() -> None:
    assert {name.partition("/")[0] for name in NAMES} <= set(NAMES)
    with pytest.raises(KeyError):
        few().likely_ns("matmul/bf16", np.array([US]))


def test_what_the_host_pays_is_some_of_an_eager_op_for_a_launch_and_many_for_a_call() -> None:
    host = curves().host
    assert all(value > 0 for value in host.values())
    assert all(host[name] < 1.0 for name in ("fused of foreach", "fused of for-loop", "foreach of for-loop"))
    assert host["replay"] < host["compiled"] < host["call"] < host["training_call"]


@drawn(50)
@given(st.sampled_from(NAMES), st.floats(1.0, 1e10))
def test_no_kernel_is_far_faster_than_its_floor_or_takes_no_time(name: str, floor: float) -> None:
    taken = float(curves().likely_ns(name, np.array([floor]))[0])
    assert floor / MOST_REACHED <= taken < np.inf


@drawn(30)
@given(st.sampled_from(NAMES), st.floats(1.0, 1e9), st.floats(1.0, 4.0))
def test_the_share_lies_between_those_of_its_neighbours(name: str, floor: float, more: float) -> None:
    curve = curves().classes[name]
    found = curve.at(np.array([floor, floor * more]))
    assert min(curve.reached) - 1e-9 <= found.min() <= found.max() <= max(curve.reached) + 1e-9
