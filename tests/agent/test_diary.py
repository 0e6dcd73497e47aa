"""What a job does beside its steps."""

from __future__ import annotations

from time import perf_counter_ns

from findwall.agent.timing.diary import EVALUATION, Diary

SECOND = 1_000_000_000


def test_an_eval_before_the_first_step_is_part_of_the_start() -> None:
    diary = Diary()
    diary.evaluation_began()
    diary.step_ended(1, perf_counter_ns() + 2 * SECOND, 0.0)
    assert diary.total == {}
    assert diary.elapsed(diary.last_step).start_up >= 2 * SECOND


def test_a_later_one_is_an_evaluation_less_the_step_that_ends_it() -> None:
    diary = Diary()
    diary.step_ended(1, perf_counter_ns(), SECOND)
    diary.evaluation_began()
    diary.step_ended(2, perf_counter_ns() + 3 * SECOND, SECOND)
    assert 2 * SECOND <= diary.total[EVALUATION] < 3 * SECOND
