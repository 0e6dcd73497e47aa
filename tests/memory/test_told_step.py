"""The step of a job that ran out of memory, made of what it told: what it needs, and what would fit."""

from __future__ import annotations

from typing import Any

import pytest

from findwall.examine.failed_memory import looked_into, told_of
from findwall.memory.told_step import told_steps
from findwall.model.answers.memory_answer import FailedModel, MemoryKindRow, OutOfMemory
from findwall.model.measured_run import Rank
from findwall.report.words import spoken
from findwall.units import GIB
from memory_samples import HIDDEN, LAYERS, TOKENS, WEIGHT, trained

WEIGHTS = [(GIB // 4, 16)]  # 4 GiB
ADAM = FailedModel(WEIGHTS, 2.0, 4 * GIB)


def oom(phase: Any = "forward", state: float = 8.0, rest: float = 66.0, **changes: Any) -> OutOfMemory:
    kinds = [
        MemoryKindRow("parameters", 4.0, 16),
        MemoryKindRow("optimizer-state", state, 32),
        MemoryKindRow("unknown", rest, 0),
    ]
    found = OutOfMemory(1.0, 0.5, 0.0, None, "size", phase, "train.py:9", 0, total_gib=80.0)
    found.held_gib, found.kinds, found.room_gib = 4.0 + state + rest, kinds, 79.0
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def peaks(found: OutOfMemory, model: FailedModel = ADAM) -> list[float]:
    return [one.peak_bytes / GIB for one in told_steps(found, model)]


def test_the_forward_pass_that_failed_goes_on_to_its_end() -> None:
    low, high = peaks(oom(), FailedModel(WEIGHTS, 2.0, 0, (0.5, 0.625)))
    beside = 4 + 8 + 0.25  # weights, state, and the first gradient
    assert low == pytest.approx(beside + 67 / 0.625, rel=0.01)
    assert high == pytest.approx(beside + 67 / 0.5 * 17 / 16, rel=0.01)


@pytest.mark.parametrize("share", [None, (0.0, 0.05)])
def test_of_a_pass_that_nobody_knows_the_end_is_open(share: Any) -> None:
    low, high = peaks(oom(), FailedModel(WEIGHTS, 2.0, 0, share))
    assert high - low == pytest.approx(67 * 9 / 8, rel=0.01)


def test_state_that_is_still_to_come_is_counted() -> None:
    first = peaks(oom(state=0.0, rest=74.0))[0]
    assert first == pytest.approx(4 + 8 + 0.25 + 75, rel=0.01)


def test_an_update_that_fails_has_no_activations() -> None:
    steps = told_steps(oom("optimizer", state=3.0, rest=20.0, state_gib=8.0), ADAM)
    assert {one.peak_bytes / GIB for one in steps} == {4 + 4 + 8 + 20 + 4}
    assert {one.phases.of(one.peak) for one in steps} == {"optimizer"}


def test_what_was_there_before_the_job_is_no_activation() -> None:
    on_host = oom(on_host=True, device=None)
    model = FailedModel(WEIGHTS, 2.0, 0, (0.5, 0.5), before=6 * GIB)
    assert peaks(on_host, model)[0] == pytest.approx(4 + 8 + 0.25 + 6 + 61 / 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("found", "model"),
    [
        (oom(asked_gib=None), ADAM),
        (oom(held_gib=None), ADAM),
        (oom(held_gib=1e15), ADAM),
        (oom(rest=-1.0), ADAM),
        (oom(), FailedModel()),
    ],
)
def test_nothing_is_made_up(found: OutOfMemory, model: FailedModel) -> None:
    assert told_steps(found, model) == ()


@pytest.mark.parametrize("done", range(1, LAYERS))
def test_a_step_that_is_known_lies_in_between(done: int) -> None:
    """As the job that would have had room for it."""
    job = trained()
    sizes = [WEIGHT + layer * 4096 for layer in range(LAYERS)]
    kinds = [MemoryKindRow("parameters", sum(sizes) / GIB, LAYERS)]
    kinds += [MemoryKindRow("optimizer-state", 2 * sum(sizes) / GIB, 2 * LAYERS)]
    rest = (TOKENS + 2 * done * HIDDEN) / GIB
    held = 3 * sum(sizes) / GIB + rest
    failed = oom(asked_gib=HIDDEN / GIB, held_gib=held, kinds=[*kinds, MemoryKindRow("unknown", rest, 0)])
    model = FailedModel([(size, 1) for size in sizes], 2.0, 0, (done / LAYERS, (done + 1) / LAYERS))
    low, high = peaks(failed, model)
    assert low <= job.peak / GIB <= high


def said(found: OutOfMemory, model: FailedModel = ADAM) -> str:
    told = looked_into(Rank(oom=found, failed_model=model), None)
    assert told is not None
    return " ".join(map(spoken, told_of(told)))


def test_the_cheapest_change_that_fits_is_named_with_its_peak() -> None:
    words = said(oom(), FailedModel(WEIGHTS, 2.0, 4 * GIB, (0.75, 0.8)))
    assert "A whole step needs 96.0 GiB to 107.2 GiB, and the job can have 79.0 GiB." in words
    assert "The cheapest change that fits: compute the batch in 2 parts and accumulate gradients" in words
    assert "leaves a peak of 60.9 GiB" in words and "% of this batch surely fits." in words


def test_no_share_of_the_batch_fits_where_an_update_alone_takes_more() -> None:
    """16 GiB of weights, gradients and state, and what an update takes beside them."""
    for room, passing, on_host, fits in (
        (20.0, 2, False, True),
        (20.0, 6, False, False),
        (20.0, 3, True, False),
        (25.0, 3, True, True),
    ):
        model = FailedModel(WEIGHTS, 2.0, passing * GIB, (0.75, 0.8))
        device = None if on_host else 0
        words = said(oom(room_gib=room, on_host=on_host, device=device), model)
        assert "A whole step needs" in words and ("surely fits" in words) is fits, (room, passing, on_host)


def test_of_a_request_in_no_training_step_no_step_is_told() -> None:
    assert "A whole step" in said(oom(of_training=True))
    words = said(oom(of_training=False))
    assert not any(one in words for one in ("A whole step", "accumulate", "of this batch"))


def test_the_line_to_write_stands_beside_it() -> None:
    words = said(oom(), FailedModel(WEIGHTS, 2.0, 4 * GIB, (0.75, 0.8)))
    assert words.endswith("Write `for part in batch.chunk(2): (loss_of(part) / 2).backward()`.")


def test_what_may_not_fit_is_called_so() -> None:
    assert "The cheapest change that may fit: compute the batch in 2 parts" in said(oom(room_gib=79.2))


def test_where_nothing_fits_that_is_said() -> None:
    words = said(oom(room_gib=20.0), FailedModel(WEIGHTS, 2.0, 0, (0.75, 0.8)))
    assert words.endswith("No single change that findwall knows makes the step fit.")


@pytest.mark.parametrize("cause", ["growth", "fragmentation", "others"])
def test_what_has_another_remedy_gets_no_smaller_step(cause: Any) -> None:
    assert said(oom(cause=cause)) == ""


def test_a_step_that_would_have_fitted_is_not_known() -> None:
    assert said(oom(room_gib=500.0, on_host=True)) == ""
    assert "`findwall run --memory` records the first steps" in said(oom(room_gib=500.0))
