"""Losses of two runs: the same, or not; and no verdict where there is nothing to compare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.trial.equivalence import FEWEST, apart, compare_losses, plotted

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
    assert compare_losses([losses, losses], [], [rounded], exact=True).likeness == "differs"


def test_rounding_that_grows_is_told_from_a_wrong_step() -> None:
    """Training that overshoots: after a few steps no two runs are alike, whatever their seed."""
    plain = [7.1, 5.66, 5.24, 5.8, 6.49, 7.27, 8.24, 9.33, 10.7, 10.3, 8.97, 7.96]
    seeded = [7.08, 5.7, 5.21, 5.75, 6.6, 7.5, 7.8, 8.6, 9.4, 11.2, 9.9, 8.6]
    rounded = [7.11, 5.67, 5.26, 5.86, 6.57, 7.38, 8.19, 8.96, 9.77, 8.63, 8.09, 8.02]
    still = [7.1, 7.1, 7.1, 7.09, 7.1, 7.1, 7.08, 7.1, 7.1, 7.1, 7.1, 7.1]
    assert compare_losses([plain], [seeded], [rounded], exact=False).likeness == "same"
    assert compare_losses([plain], [seeded], [still], exact=False).likeness == "differs"


def test_the_first_steps_decide_where_plain_runs_go_far_apart_later() -> None:
    plain = [7.1, 5.66, 5.24, 5.8, 6.49, 9.0, 14.0, 6.0, 15.0, 7.0, 13.0, 5.0]
    seeded = [7.08, 5.7, 5.21, 5.75, 6.6, 14.0, 7.0, 13.0, 6.0, 14.0, 6.0, 12.0]
    rounded = [7.11, 5.67, 5.26, 5.86, 6.57, 7.0, 9.0, 11.0, 9.0, 12.0, 8.0, 9.0]
    found = compare_losses([plain], [seeded], [rounded], exact=False)
    assert found.likeness == "same" and found.steps == 5 and len(found.plain) == 12
    assert found.apart == pytest.approx(0.0059, abs=1e-3) and found.allowed == pytest.approx(0.02)
    off = [7.5, 5.3, 5.6, 5.4, 6.9, *rounded[5:]]  # 7 %: no rounding, whatever two seeds differ by later
    assert compare_losses([plain], [seeded], [off], exact=False).likeness != "same"
    assert compare_losses([plain], [seeded], [[90.0] * 12], exact=False).likeness == "differs"


def test_first_steps_in_which_nothing_is_learned_decide_nothing() -> None:
    """A warm-up of the learning rate: a job that never trains is as near there as one that does."""
    later, seeds = [9.0, 14.0, 6.0, 15.0, 7.0, 13.0, 5.0], [14.0, 7.0, 13.0, 6.0, 14.0, 6.0, 12.0]
    plain, seeded = [7.1, 7.1, 7.09, 7.1, 7.08, *later], [7.11, 7.09, 7.1, 7.09, 7.08, *seeds]
    still = [7.1, 7.11, 7.09, 7.1, 7.1, *[7.1] * 7]
    assert compare_losses([plain], [seeded], [still], exact=False).likeness == "not-checked"


def test_as_much_as_two_seeds_differ_is_allowed() -> None:
    plain, seeded, fixed = [1.0, 0.9, 0.8, 0.7], [1.2, 1.0, 0.7, 0.6], [1.1, 0.95, 0.75, 0.65]
    assert compare_losses([plain], [seeded], [fixed], exact=False).likeness == "same"
    assert compare_losses([plain], [], [fixed], exact=False).likeness == "differs"


@pytest.mark.parametrize("plain", [[], [[]], [[1.0] * (FEWEST - 1)]])
def test_without_losses_nothing_is_checked(plain: list[list[float]]) -> None:
    assert compare_losses(plain, [], [[1.0] * 9], exact=True).likeness == "not-checked"
    assert compare_losses([[1.0] * 9], [], plain, exact=True).likeness == "not-checked"


def test_what_only_seeds_that_differ_much_would_explain_is_not_called_the_same() -> None:
    plain, seeded = [1.0, 4.0, 0.5, 2.0], [3.0, 0.6, 2.5, 0.4]
    near = [value * 1.01 for value in plain]
    assert compare_losses([plain], [seeded], [near], exact=False).likeness == "same"
    for other in ([0.0] * 4, [2.0, 2.0, 1.0, 1.0]):
        found = compare_losses([plain], [seeded], [other], exact=False)
        assert found.likeness == "not-checked" and "differ by too much" in found.why
        assert found.allowed == pytest.approx(0.2) and not found.needs_repeat
    assert compare_losses([plain], [seeded], [[90.0] * 4], exact=False).likeness == "differs"


@pytest.mark.parametrize("exact", [True, False])
def test_plain_runs_that_differ_much_call_nothing_the_same(exact: bool) -> None:
    """As those of a job that goes on from the checkpoint of the run before."""
    plain, again, off = [4.0, 4.0, 4.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]
    found = compare_losses([plain, again], [], [off], exact)
    assert found.likeness == "not-checked" and found.allowed == pytest.approx(0.2)


def test_one_plain_run_does_not_show_what_a_repeat_differs_by() -> None:
    plain, off = [1.0, 0.9, 0.8, 0.7], [1.015, 0.9135, 0.812, 0.7105]
    found = compare_losses([plain], [], [off], exact=True)
    assert found.likeness == "not-checked" and found.needs_repeat
    assert compare_losses([plain, plain], [], [off], exact=True).likeness == "differs"
    assert compare_losses([plain], [], [plain], exact=True).likeness == "same"


@pytest.mark.parametrize("exact", [True, False])
def test_a_loss_that_is_no_number_differs(exact: bool) -> None:
    broken = [1.0] * 8 + [float("nan")]
    assert compare_losses([[1.0] * 9] * 2, [], [broken], exact).likeness == "differs"


def test_a_loss_that_broke_is_no_rounding() -> None:
    assert compare_losses([[1.0] * 9], [], [[1.0] * 8 + [1e300]], exact=False).likeness == "differs"


def test_curves_are_drawn_on_one_scale() -> None:
    assert plotted([0.0, 1.0], [1.0, 0.0]) == ("▁█", "█▁")
    assert plotted([3.0, 3.0], [3.0, 3.0]) == ("▁▁", "▁▁")
