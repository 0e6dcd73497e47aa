"""What files beside the fixes declare of memory: the recorded steps with each change."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.fixes import memory_edits
from findwall.fixes.communication.sharding_memory import _beside, over_ranks
from findwall.memory.batch_growth import batch_lines, largest_batch, with_batch
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.lives import total
from findwall.memory.memory_ladder import Rung, predicted
from findwall.memory.played_memory import played
from findwall.memory.traced_history import traced_history
from findwall.model.claims import Claim
from findwall.report.words import spoken
from memory_traces import HIDDEN, MIB, PASSING, WEIGHTS, Trace, train

MODEL = sum(WEIGHTS)


def recorded(folder: Path, numbers: str = "", **how: bool) -> DeviceMemoryFacts:
    trace = Trace(numbers=numbers)
    _build(trace)
    train(trace, steps=3, first_state=True, **how)
    history = traced_history(trace.timeline(folder))
    assert history is not None
    return device_memory(history)[0]


def _build(trace: Trace) -> None:
    for layer, size in enumerate(WEIGHTS):
        with trace.row("aten::uniform_"):
            trace.make(f"weight{layer}", size)


def rungs(facts: DeviceMemoryFacts) -> dict[str, Rung]:
    return {one.fix: one for one in predicted(facts, memory_edits())}


def test_each_file_is_found_and_each_rung_is_an_interval(tmp_path: Path) -> None:
    found = rungs(recorded(tmp_path, stacks=True))
    wanted = {
        "smaller-batch",
        "checkpoint-blocks",
        "bf16-autocast",
        "zero-3",
        "sgd",
        "keep-gradients",
        "qlora",
    }
    assert wanted <= found.keys()
    assert all(0 <= one.low <= one.mid <= one.high for one in found.values())


def test_state_of_an_optimizer_goes_with_it(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    found = rungs(facts)
    assert facts.peak_bytes - found["sgd-momentum"].mid == MODEL
    assert facts.peak_bytes - found["sgd"].mid == 2 * MODEL
    assert facts.peak_bytes - found["8-bit-optimizer"].mid == 2 * MODEL * 3 // 4


def test_lists_of_tensors_are_there_at_once(tmp_path: Path) -> None:
    """In the optimizer: the model, its state and gradients, and once more all of it."""
    assert rungs(recorded(tmp_path))["foreach-optimizer"].mid >= 5 * MODEL


def test_gradients_that_stay_are_there_in_forward(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    # At the peak all activations are there, and what the first op of backward makes.
    least = 4 * MODEL + HIDDEN * len(WEIGHTS) + PASSING + WEIGHTS[-1]
    assert rungs(facts)["keep-gradients"].mid == least


def test_ranks_share_what_each_stage_says(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    for ranks in (2, 8):
        one, two, three = over_ranks(facts, ranks)
        assert facts.peak_bytes - one.low == 2 * (MODEL - MODEL // ranks)
        assert three.low <= two.low <= one.low
        assert three.high - three.low >= MODEL // len(WEIGHTS)  # what is gathered


def test_the_first_stage_gives_whole_weights_to_ranks(tmp_path: Path) -> None:
    """With as many ranks as weights, the first has the state of the largest."""
    facts = recorded(tmp_path)
    one = over_ranks(facts, len(WEIGHTS))[0]
    assert facts.peak_bytes - one.mid == pytest.approx(2 * (MODEL - max(WEIGHTS)), abs=64)


def test_what_is_gathered_is_gone_in_the_optimizers_step(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    phases, parts = facts.phases, played(facts)
    there = total(_beside(parts, MODEL, MIB).lives, _beside(parts, MODEL, MIB).lives.asked, phases.count)
    more = there - total(parts.lives, parts.lives.asked, phases.count)
    of = [phases.of(event) for event in range(phases.count)]
    gathered = {phase: set(more[[one == phase for one in of]].tolist()) for phase in dict.fromkeys(of)}
    assert gathered["forward"] == {MODEL} and gathered["backward"] == {MODEL + MIB}
    assert gathered["optimizer"] == {0}


def test_autocast_adds_two_bytes_a_weight(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    found = rungs(facts)["bf16-autocast"]
    narrow = HIDDEN * len(WEIGHTS) // 2
    assert found.low >= facts.peak_bytes - narrow - PASSING + MODEL // 2
    assert found.low <= found.mid <= facts.peak_bytes + MODEL


def test_a_job_that_casts_its_weights_is_not_told_to(tmp_path: Path) -> None:
    assert not {"bf16-autocast", "pure-bf16"} & rungs(recorded(tmp_path, casts=True)).keys()


@pytest.mark.parametrize("numbers", ["c10::BFloat16", "c10::Half", "float", ""])
def test_sixteen_bits_are_for_who_multiplies_in_more(tmp_path: Path, numbers: str) -> None:
    found = rungs(recorded(tmp_path, numbers=numbers))
    told = {one.if_wide for name, one in found.items() if name in ("bf16-autocast", "pure-bf16")}
    assert told == {"float": {False}, "": {True}}.get(numbers, set())
    asks = Claim("memory-rung/pure-bf16", {"peak_gib": 1.0, "saves_gib": 1.0, "if_wide": numbers == ""})
    assert ("if it is in fp32 today" in spoken(asks)) == (numbers == "")


def test_blocks_are_the_calls_of_one_module(tmp_path: Path) -> None:
    """Of two activations of a block the last is its result and stays; the other comes back in backward."""
    facts = recorded(tmp_path, stacks=True)
    found = rungs(facts)["checkpoint-blocks"]
    assert (found.count, found.module) == (len(WEIGHTS), "Block")
    assert found.mid <= facts.peak_bytes - HIDDEN * (len(WEIGHTS) - 1)


def test_an_update_without_a_backward_pass_is_told_of_no_weights(tmp_path: Path) -> None:
    """A trace that is cut: what the optimizer makes and keeps, and no gradient."""
    trace = Trace()
    with trace.row("aten::linear"):
        trace.make("hidden", HIDDEN)
    with trace.row("autograd::engine::evaluate_function: AddmmBackward0"):
        trace.free("hidden")
    with trace.row("Optimizer.step#AdamW.step", "user_annotation"), trace.row("aten::zeros_like"):
        trace.make("state", MIB)
    with trace.row("aten::linear"):
        trace.make("hidden", HIDDEN)
    with trace.row("autograd::engine::evaluate_function: AddmmBackward0"):
        trace.free("hidden")
    history = traced_history(trace.timeline(tmp_path))
    assert history is not None
    assert not {"single-tensor-optimizer", "foreach-optimizer"} & rungs(device_memory(history)[0]).keys()


@pytest.mark.parametrize("factor", [2, 4])
def test_a_larger_batch_makes_activations_larger_and_nothing_else(tmp_path: Path, factor: int) -> None:
    facts = recorded(tmp_path)
    grown = (factor - 1) * (HIDDEN * len(WEIGHTS) + PASSING)
    peak = with_batch(facts, factor)[0].peak
    assert facts.peak_bytes < peak <= facts.peak_bytes + grown


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 1.7, 4.0, 64.0])
def test_few_lines_say_what_the_steps_played_again_say(tmp_path: Path, factor: float) -> None:
    facts = recorded(tmp_path)
    lines = batch_lines(facts).lines
    peak = max(stays + factor * grows for stays, grows in lines)
    assert peak == pytest.approx(with_batch(facts, factor)[0].peak, abs=len(facts.walk.lives))
    assert len(lines) < 8


def test_the_largest_batch_fits_and_a_larger_one_does_not(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    room = 100 * MIB
    factor = largest_batch(facts, room)
    assert max(one.peak for one in with_batch(facts, factor)) <= room
    assert max(one.peak for one in with_batch(facts, 1.01 * factor)) > room
