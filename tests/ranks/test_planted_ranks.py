"""32 ranks of one real step with a fault planted: who is late, why, and what it is worth."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.ranks.compared_ranks import compare
from findwall.ranks.reduced.summarising import summarise
from planted import PLANTED, SCORING

RANKS = 32


@pytest.mark.parametrize("fault", PLANTED.FAULTS)
def test_a_planted_fault_is_told(fault: str) -> None:
    job = PLANTED.plant(fault, RANKS, seed=2)
    score = SCORING.scored(job, job.timelines, fault, 2)
    assert score.who and score.why and score.gain, score.line()


@pytest.mark.parametrize("fault", ["slow-gpu", "bad-node", "long-stage", "nothing"])
def test_what_a_slow_host_hides_is_blamed_on_nobody(fault: str) -> None:
    job = PLANTED.plant(fault, RANKS, seed=1, base="host-bound")
    assert SCORING.scored(job, job.timelines, fault, 1).who


@pytest.mark.parametrize(
    ("fault", "base"),
    [
        ("host-sleep", "device-bound"),
        ("host-sleep", "host-bound"),
        ("starved-loader", "host-bound"),
        ("slow-link", "device-bound"),
        ("random-gc", "device-bound"),
        ("nothing", "device-bound"),
    ],
)
def test_lost_rows_and_ranks_cut_off_are_endured(fault: str, base: str) -> None:
    job = PLANTED.plant(fault, RANKS, seed=2, base=base)
    score = SCORING.scored(job, PLANTED.damaged(job.timelines, 2), fault, 2)
    assert score.who and score.why and score.gain, score.line()


def test_a_rank_speaks_for_the_steps_that_it_holds() -> None:
    job = PLANTED.plant("slow-gpu", 16, seed=1, kernels=24)
    late = job.fault.who[1]
    cut = [
        replace(one, events=one.events.take(one.events.end < 0.6 * one.events.end.max()))
        if one.header.rank == late
        else one
        for one in job.timelines
    ]
    answer = compare([one for one in map(summarise, cut) if one is not None]).answer
    named = answer.suspects[0]
    assert named.named and named.name == str(late)
    assert named.saves_ms == pytest.approx(job.gain_ms, rel=0.1)


def test_the_replay_gives_the_step_and_no_wait_exceeds_it() -> None:
    job = PLANTED.plant("slow-gpu", RANKS, seed=3)
    made = [one for one in map(summarise, job.timelines) if one is not None]
    answer = compare(made).answer
    assert answer.replay_error == pytest.approx(0, abs=0.02)
    assert answer.step_ms == pytest.approx(job.step_ms, rel=0.01)
    assert answer.waits is not None and answer.waits.max <= answer.step_ms
    assert answer.matched == answer.messages
    assert answer.nodes == RANKS // PLANTED.NODE
    assert answer.clock_residual_us is not None and answer.clock_residual_us < 10


def test_stages_are_told_by_who_sends_to_whom() -> None:
    job = PLANTED.plant("long-stage", 16, seed=1)
    made = [one for one in map(summarise, job.timelines) if one is not None]
    assert compare(made).answer.stages == PLANTED.STAGES
