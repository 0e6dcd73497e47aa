"""What grows with the batch, by one recording and by two."""

from __future__ import annotations

import pytest

from findwall.memory.batch_growth import (
    SCRATCH_OF_WEIGHTS_GROWS,
    batch_lines,
    follows_batch,
    lines_by_size,
    paired,
    with_batch,
)
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from memory_samples import BACKWARD, BUILD, MAIN, MIB, STEP, Recorder, Stack, cpp_pickle

WEIGHT = 8 * MIB
LINEAR: Stack = ("at::_ops::addmm::call(...)", "model.py:9:forward", MAIN)
ENGINE = "torch::autograd::Engine::thread_main()"
CAST: Stack = (
    "at::_ops::empty_strided::call(...)",
    "at::_ops::_to_copy::call(...)",
    "at::autocast::cached_cast(c10::ScalarType, at::Tensor const&)",
    "model.py:9:forward",
    MAIN,
)
IN_LIBRARY: Stack = ("at::native::run_conv_plan(cudnnContext*)", "at::_ops::convolution::call(...)", MAIN)
ON_WEIGHTS: Stack = (
    "at::_ops::empty_memory_format::call(...)",
    "at::native::_cudnn_rnn_backward_weight(at::Tensor const&)",
    ENGINE,
)
COPIES: Stack = ("at::_ops::empty_strided::call(...)", "at::_ops::clone::call(...)", *IN_LIBRARY)


def recorded(batch: int, scratch: int = 0, extra: bool = False, casts: int = 0) -> DeviceMemoryFacts:
    """A step: `casts` copies in sixteen bits, an activation of 3 MiB a sample, scratch in both passes."""
    job = Recorder()
    job.alloc("weight", WEIGHT, BUILD)
    with job.recording():
        for number in range(casts):
            job.alloc(f"cast{number}", WEIGHT // 2, CAST)
        job.alloc("hidden", 3 * MIB * batch, LINEAR)
        for stack in (COPIES, IN_LIBRARY):
            job.alloc("work", MIB + MIB * batch, stack)
            job.free("work", stack)
        for _ in range(1 + extra):
            job.alloc("work", scratch or MIB, ON_WEIGHTS)
            job.free("work", ON_WEIGHTS)
        job.alloc("gradient", WEIGHT, (ENGINE,))
        for number in range(casts):
            job.free(f"cast{number}", BACKWARD)
        job.free("hidden", BACKWARD)
        job.alloc("update", MIB, STEP)
        job.free("update", STEP)
    return device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[0]


def grows(facts: DeviceMemoryFacts, size: int) -> list[float]:
    found: list[float] = follows_batch(facts).likely[facts.walk.lives.asked == size].tolist()
    return found


def test_what_a_library_works_in_is_no_result() -> None:
    facts = recorded(2, scratch=20 * MIB)
    lives = facts.walk.lives
    own = [facts.stacks.place(stack)[0].split("(")[0] for stack in lives.stack[facts.is_scratch].tolist()]
    assert own == [
        "at::native::run_conv_plan",
        "at::_ops::empty_memory_format::call",
    ]  # no copy of its inputs
    assert grows(facts, 20 * MIB) == [SCRATCH_OF_WEIGHTS_GROWS] and grows(facts, 6 * MIB) == [1.0]
    least, most = (with_batch(facts, 2)[at].peak for at in (1, 2))
    assert least < with_batch(facts, 2)[0].peak < most


@pytest.mark.parametrize("casts", [1, 2, 4])
def test_as_many_casts_as_there_are_weights_stay(casts: int) -> None:
    """Of several of one size nobody knows which is the weight's."""
    assert grows(recorded(4, casts=casts), WEIGHT // 2) == [1 - 1 / casts] * casts


def test_two_recordings_say_what_grows() -> None:
    small, large = recorded(2, scratch=22 * MIB), recorded(4, scratch=24 * MIB)
    shares = paired(large, small, 2.0)
    asked = large.walk.lives.asked
    assert shares[asked == 24 * MIB] == pytest.approx(4 / 24)
    assert shares[asked == 5 * MIB] == pytest.approx(4 / 5)
    assert shares[asked == 12 * MIB] == 1.0 and set(shares[asked == WEIGHT].tolist()) == {0.0}
    assert paired(small, large, 0.5)[small.walk.lives.asked == 22 * MIB] == pytest.approx(2 / 22)


def test_the_peak_of_a_third_size_is_that_of_its_recording() -> None:
    found = lines_by_size({batch: recorded(batch, (20 + batch) * MIB) for batch in (2, 4)})
    for wanted in (1, 8, 64):
        truth = recorded(wanted, (20 + wanted) * MIB).peak_bytes
        for batch, lines in found.items():
            factor = wanted / batch
            least, peak, most = (
                max(stays + factor * more for stays, more in one)
                for one in (lines.least, lines.lines, lines.most)
            )
            assert least < peak == pytest.approx(truth, rel=1e-6)
            assert least < truth <= (1 + 1e-6) * most


def test_a_place_that_asks_more_often_in_one_of_them_is_told_by_that_one_alone() -> None:
    small, large = recorded(2, scratch=22 * MIB), recorded(4, scratch=24 * MIB, extra=True)
    assert set(paired(large, small, 2.0)[large.walk.lives.asked == 24 * MIB].tolist()) == {
        SCRATCH_OF_WEIGHTS_GROWS
    }
    assert lines_by_size({4: large}) == {4: batch_lines(large)}


def test_an_evaluation_beside_the_steps_has_batches_of_its_own() -> None:
    """Here in one of three steps, larger than what they take."""
    aside: Stack = ("at::_ops::addmm::call(...)", "model.py:9:forward", "train.py:40:evaluate", MAIN)
    job = Recorder()
    job.alloc("weight", WEIGHT, BUILD)
    with job.recording():
        for step in range(3):
            if step == 1:
                job.alloc("scores", 40 * MIB, aside)
                job.free("scores", aside)
            job.alloc("hidden", 6 * MIB, LINEAR)
            job.alloc("gradient", WEIGHT, (ENGINE,))
            job.free("hidden", BACKWARD)
            job.alloc("update", MIB, STEP)
            job.free("update", STEP)
            job.free("gradient", ("train.py:50:main", MAIN))
    facts = device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[0]
    assert grows(facts, 40 * MIB) == [0.0] and grows(facts, 6 * MIB) == [1.0] * 3
    assert facts.peak_bytes == with_batch(facts, 2)[0].peak == WEIGHT + 40 * MIB
