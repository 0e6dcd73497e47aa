"""Losses of two runs: the same, or not; and no verdict where there is nothing to compare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.verify.equivalence import FEWEST, apart, compare_losses, plotted

CURVES = st.lists(st.floats(0.1, 100), min_size=5, max_size=40)


@drawn(50)
@given(CURVES)
def test_a_run_is_like_itself(losses: list[float]) -> None:
    assert compare_losses([losses, losses], [], [losses], exact=True).likeness == "same"
    assert apart(losses, losses) == 0


@drawn(50)
@given(CURVES, st.floats(0.05, 2.0))
def test_other_numbers_are_found_whatever_the_fix_promises(losses: list[float], off: float) -> None:
    other = [value * (1 + off) for value in losses]
    for exact in (True, False):
        found = compare_losses([losses, losses], [], [other], exact)
        assert found.likeness == "differs" and found.apart == pytest.approx(off)


@drawn(50)
@given(CURVES)
def test_rounding_is_allowed_to_those_that_round(losses: list[float]) -> None:
    rounded = [value * 1.01 for value in losses]
    assert compare_losses([losses], [], [rounded], exact=False).likeness == "same"
    assert compare_losses([losses], [], [rounded], exact=True).likeness == "differs"


def test_as_much_as_two_seeds_differ_is_allowed() -> None:
    plain, seeded, fixed = [1.0, 0.9, 0.8, 0.7], [1.2, 1.0, 0.7, 0.6], [1.1, 0.95, 0.75, 0.65]
    assert compare_losses([plain], [seeded], [fixed], exact=False).likeness == "same"
    assert compare_losses([plain], [], [fixed], exact=False).likeness == "differs"


@pytest.mark.parametrize("plain", [[], [[]], [[1.0] * (FEWEST - 1)]])
def test_without_losses_nothing_is_checked(plain: list[list[float]]) -> None:
    assert compare_losses(plain, [], [[1.0] * 9], exact=True).likeness == "not-checked"
    assert compare_losses([[1.0] * 9], [], plain, exact=True).likeness == "not-checked"


def test_a_loss_that_broke_is_no_rounding() -> None:
    assert compare_losses([[1.0] * 9], [], [[1.0] * 8 + [1e300]], exact=False).likeness == "differs"


def test_curves_are_drawn_on_one_scale() -> None:
    assert plotted([0.0, 1.0], [1.0, 0.0]) == ("▁█", "█▁")
    assert plotted([3.0, 3.0], [3.0, 3.0]) == ("▁▁", "▁▁")
