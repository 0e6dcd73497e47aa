"""What findwall costs, and how sure that is."""

from __future__ import annotations

import random

import pytest

from findwall.agent.timing.cost import Shadow, block_length, describe, hook_share, sentence, shadow_interval


def pairs(cost: float, noise: float, count: int = 30, seed: int = 0) -> list[tuple[float, float]]:
    generator = random.Random(seed)
    return [
        (1 + cost + noise * generator.gauss(0, 1), 1 + noise * generator.gauss(0, 1)) for _ in range(count)
    ]


def test_no_cost_is_found_to_be_none():
    low, _, high = shadow_interval(pairs(0.0, 0.005))
    assert low < 0 < high < 0.01


def test_a_cost_is_found():
    low, middle, high = shadow_interval(pairs(0.05, 0.005))
    assert 0.04 < low < middle < high < 0.06


def test_one_pause_does_not_move_it():
    values = pairs(0.0, 0.002)
    values[3] = (9.0, 1.0)
    assert shadow_interval(values)[2] < 0.01


def test_the_interval_covers_the_truth_about_95_times_in_100():
    covered = 0
    for seed in range(200):
        low, _, high = shadow_interval(pairs(0.01, 0.01, 20, seed))
        covered += low <= 0.01 <= high
    assert covered >= 180


def test_too_few_pairs_give_no_interval():
    assert shadow_interval(pairs(0, 0.01, 5)) is None
    few = Shadow(pairs(0, 0.01, 5), denser=1, counting_ns=0, lean_ns=0)
    assert describe([1], [100], few)["shadow_share"] is None


def test_a_denser_block_counts_for_as_many_and_what_no_block_is_without_is_added():
    noisy = pairs(0.05, 0.005)
    plain = Shadow(noisy, denser=1, counting_ns=0, lean_ns=0).interval()
    assert plain == shadow_interval(noisy)
    tenth = Shadow(noisy, denser=10, counting_ns=0.02, lean_ns=0.003).interval()
    assert tenth == pytest.approx([(end + 0.02) / 10 + 0.003 for end in plain], rel=0.01)


def test_shares_of_nothing_are_unknown():
    assert hook_share([], []) is None
    assert hook_share([1, 1], [100, 100]) == pytest.approx(0.01)
    assert describe([], [])["step_after_trace"] is None


def test_blocks_are_long_enough_to_time():
    assert block_length(1e6) == 25
    assert block_length(1e9) == 2
    assert block_length(1) == 100


def test_the_sentence_tells_of_steps_that_are_longer_after_the_trace() -> None:
    def said(after: float, stays: bool = True) -> str:
        trace = {"pause_s": 4.2, "profiler_stays": stays}
        return sentence({"hook_share": 0.001, "trace": trace, "step_after_trace": after})

    assert "steps are 35.00 % longer after it than before" in said(1.35)
    assert "after it" not in said(1.02) and "after it" not in said(0.9)
    assert "after it" not in said(1.35, stays=False)  # somebody else's doing


def test_the_sentence_never_says_negative_percent_longer() -> None:
    def said(low: float, mid: float, high: float) -> str:
        return sentence({"hook_share": 0.001, "shadow_share": {"low": low, "mid": mid, "high": high}})

    assert "1.00 % longer than without" in said(0.005, 0.01, 0.02)
    assert "1.00 % shorter than without" in said(-0.02, -0.01, -0.005)
    assert "no more than the noise (-2.00 % to 3.00 % at 95 %)" in said(-0.02, 0.01, 0.03)
