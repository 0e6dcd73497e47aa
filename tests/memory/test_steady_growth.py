"""Memory that grows in every step, told from all that grows for a while; on made-up totals."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.memory.steady_growth import FEWEST_LOOKS, SteadyGrowth, steady_growth
from findwall.model.machine import MemoryTotals

MIB, GIB = 1 << 20, 1 << 30
BASE = 4 * GIB


def totals(
    held: Callable[[int], float], looks: int = 60, every: int = 20, limit: int | None = None
) -> MemoryTotals:
    """A look a second, every so many steps."""
    steps = [look * every for look in range(looks)]
    bytes_held = [int(held(step)) for step in steps]
    ns = [look * 10**9 for look in range(looks)]
    return MemoryTotals(steps, ns, bytes_held, bytes_held, None, limit)


def leak(mib: float) -> Callable[[int], float]:
    return lambda step: BASE + mib * MIB * step


def test_a_leak_is_told_with_the_step_at_which_memory_ends() -> None:
    found = steady_growth(totals(leak(3), limit=8 * GIB))
    assert found is not None
    assert found.bytes_per_step == pytest.approx(3 * MIB)
    assert found.full_at_step == pytest.approx(4 * GIB / (3 * MIB), abs=1)
    assert found.full_in_s == pytest.approx((4 * GIB / (3 * MIB) - 59 * 20) / 20, rel=0.01)


def test_where_nobody_knows_how_much_there_is_the_end_is_unknown() -> None:
    assert steady_growth(totals(leak(3))) == SteadyGrowth(3 * MIB, 59 * 20, None, None)


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(lambda step: BASE, id="flat"),
        pytest.param(lambda step: BASE + min(step, 300) * 8 * MIB, id="a warm-up"),
        pytest.param(lambda step: BASE + min(step, 900) * 8 * MIB, id="a cache that fills once"),
        pytest.param(lambda step: BASE + 2 * GIB * (1 - 0.995**step), id="a cache that fills ever slower"),
        pytest.param(lambda step: BASE + step % 400 * 8 * MIB, id="a saw-tooth"),
        pytest.param(lambda step: BASE + step % 70 * 8 * MIB, id="many teeth"),
        pytest.param(lambda step: BASE + step % 1100 * 8 * MIB, id="one long tooth that falls at the end"),
        pytest.param(lambda step: BASE + (step >= 600) * GIB, id="one step up"),
        pytest.param(lambda step: BASE - step * MIB, id="falling"),
        pytest.param(lambda step: BASE + step * 1024, id="a drift of a few kilobytes a step"),
    ],
)
def test_what_grows_for_a_while_is_no_leak(held: Callable[[int], float]) -> None:
    assert steady_growth(totals(held, limit=80 * GIB)) is None


def test_a_warm_up_before_the_timed_steps_does_not_hide_a_leak() -> None:
    def held(step: int) -> float:
        return leak(3)(step) + min(step, 300) * 40 * MIB

    assert steady_growth(totals(held)) is None
    assert steady_growth(totals(held), since_step=300) is not None


def test_few_looks_tell_nothing() -> None:
    assert steady_growth(totals(leak(50), looks=FEWEST_LOOKS)) is not None
    assert steady_growth(totals(leak(50), looks=FEWEST_LOOKS - 1)) is None
    assert steady_growth(MemoryTotals()) is None


@drawn(40)
@given(st.floats(0.5, 50), st.integers(0, 2**32), st.integers(FEWEST_LOOKS, 200))
def test_a_leak_is_found_in_noise_and_noise_is_no_leak(mib: float, seed: int, looks: int) -> None:
    """Noise of a twentieth of what grows; looks at which a batch happens to be there stand out by more."""
    grown = mib * MIB * 20 * (looks - 1)
    draw = random.Random(seed)
    noise = [draw.gauss(0, grown / 100) + (draw.random() < 0.05) * grown / 5 for _ in range(looks)]
    found = steady_growth(totals(lambda step: leak(mib)(step) + noise[step // 20], looks))
    if grown > 0.05 * BASE:
        assert found is not None and found.bytes_per_step == pytest.approx(mib * MIB, rel=0.1)
    assert steady_growth(totals(lambda step: BASE + noise[step // 20], looks)) is None
