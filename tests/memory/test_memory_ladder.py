"""The recorded steps played again: what a change would make of the peak, against the job with that change."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.fixes import memory_edits, memory_patches, writes_patch
from findwall.memory.batch_growth import with_batch
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.fragments import fragments, needless_calls
from findwall.memory.memory_growth import growth
from findwall.memory.memory_ladder import Rung, ladder, predicted
from findwall.memory.played_memory import played
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from findwall.memory.written_out_attention import written_out
from memory_samples import (
    BACKWARD,
    FORWARD,
    LOSS,
    MAIN,
    MIB,
    STEP,
    Recorder,
    Stack,
    build,
    cpp_pickle,
    trained,
)

BLOCKS = 6
MATRIX, HEADS, STREAM = 16 * MIB, 2 * MIB, 3 * MIB


def facts_of(job: Recorder) -> DeviceMemoryFacts:
    return device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[0]


def op(name: str, line: int) -> Stack:
    return f"at::_ops::{name}::call(at::Tensor const&)", f"model.py:{line}:forward", MAIN


def transformer(
    batch: int = 2,
    written: bool = True,
    checkpointed: bool = False,
    parts: int = 1,
    between: str = "_softmax",
) -> Recorder:
    """A few blocks, each with attention and a residual stream; sizes are of a batch of two."""
    job = Recorder()
    build(job)
    with job.recording():
        for _ in range(parts):
            _pass(job, batch / 2 / parts, written, checkpointed, op(between, 41))
        job.alloc("update", 2 * MIB, STEP)
        job.free("update", STEP)
    return job


def _pass(job: Recorder, scale: float, written: bool, checkpointed: bool, between: Stack) -> None:
    def sized(size: int) -> int:
        return int(size * scale)

    def inner(block: int, where: Stack | None = None) -> None:
        job.alloc(f"query{block}", sized(HEADS), where or op("linear", 38))
        if written:
            job.alloc(f"scores{block}", sized(MATRIX), where or op("bmm", 40))
            job.alloc(f"weights{block}", sized(MATRIX), where or between)
        job.alloc(f"mixed{block}", sized(HEADS), where or op("bmm", 42))

    names = ("query", "scores", "weights", "mixed") if written else ("query", "mixed")
    for block in range(BLOCKS):
        inner(block)
        job.alloc(f"stream{block}", sized(STREAM), op("add", 45))
        if checkpointed:
            for name in names:
                job.free(f"{name}{block}", FORWARD)
    job.alloc("loss", 512, LOSS)
    for block in reversed(range(BLOCKS)):
        if checkpointed:
            inner(block, BACKWARD)
        job.alloc("upstream", sized(STREAM), BACKWARD)
        for name in reversed(names):
            job.free(f"{name}{block}", BACKWARD)
        job.free(f"stream{block}", BACKWARD)
        job.free("upstream", BACKWARD)
        if block < 4 and f"grad{block}" not in job.held:
            job.alloc(f"grad{block}", 4 * MIB + block * 4096, BACKWARD)
    job.free("loss", LOSS)


def rung(job: Recorder, fix: str) -> Rung:
    return next(one for one in ladder(facts_of(job), memory_edits()) if one.fix == fix)


def test_attention_that_is_written_out_is_found_and_its_matrices_go() -> None:
    found = rung(transformer(), "sdpa")
    assert found.count == BLOCKS and found.high >= found.mid >= found.low
    assert found.mid == pytest.approx(transformer(written=False).peak, rel=0.02)


@pytest.mark.parametrize("between", ["relu", "exp"])
def test_attention_is_told_by_its_softmax(between: str) -> None:
    found = written_out(facts_of(transformer(between=between)))
    assert (found is not None) == (between == "exp")


def test_without_ops_nothing_is_said_of_attention() -> None:
    assert written_out(facts_of(trained(steps=2))) is None
    assert written_out(facts_of(transformer(written=False))) is None


def test_checkpointed_blocks_come_back_in_backward() -> None:
    found = rung(transformer(), "checkpoint-blocks")
    assert found.count == BLOCKS and found.longer > 0
    assert found.mid == pytest.approx(transformer(checkpointed=True).peak, rel=0.06)


@pytest.mark.parametrize("of_torch", [True, False])
def test_only_an_optimizer_of_torchs_has_its_switches(of_torch: bool) -> None:
    """Another's step is below torch's wrapper, too."""
    job, where = Recorder(), ("/site-packages/torch/optim/adamw.py:7:step", *STEP[1:]) if of_torch else STEP
    build(job)
    with job.recording():
        for _ in range(2):
            for layer in range(2):
                job.alloc(f"hidden{layer}", MIB, FORWARD)
            for layer in range(2):
                job.alloc(f"grad{layer}", 4 * MIB + layer * 4096, BACKWARD)
                job.free(f"hidden{layer}", BACKWARD)
            job.alloc("update", 8 * MIB, where)
            for name in ("update", "grad0", "grad1"):
                job.free(name, where)
    found = {one.fix for one in predicted(facts_of(job), memory_edits())}
    assert "fused-optimizer" in found and ("single-tensor-optimizer" in found) == of_torch


def test_half_the_batch_halves_what_follows_it() -> None:
    found = rung(transformer(batch=4), "smaller-batch")
    assert found.mid == pytest.approx(transformer(batch=2).peak, rel=0.02)
    assert found.low <= transformer(batch=2).peak <= found.high + 1


def test_in_parts_gradients_live_on() -> None:
    found = rung(transformer(batch=4), "accumulate-gradients")
    assert found.mid == pytest.approx(transformer(batch=4, parts=2).peak, rel=0.02)


def test_where_the_optimizer_peaks_a_smaller_batch_is_no_rung() -> None:
    job = Recorder()
    build(job)
    with job.recording():
        job.alloc("hidden", MIB)
        job.alloc("grad0", 4 * MIB, BACKWARD)
        job.free("hidden", BACKWARD)
        job.alloc("update", 9 * MIB, STEP)
        job.free("update", STEP)
    found = ladder(facts_of(job), memory_edits())
    assert found[0].fix == "fused-optimizer" and found[0].mid < job.peak
    cannot = {"smaller-batch", "accumulate-gradients", "checkpoint-blocks", "bf16-autocast"}
    assert not cannot & {one.fix for one in found}


def test_what_costs_no_time_comes_first() -> None:
    found = ladder(facts_of(transformer()), memory_edits())
    assert found[0].fix == "sdpa"
    free = [one.price != "none" for one in found]
    assert free == sorted(free) and any(free)


def test_a_leak_is_found_by_its_line() -> None:
    facts = facts_of(trained(steps=6, leak=lambda step: f"leak{step}"))
    found = growth(facts)
    assert [one.bytes_per_step for one in found] == [2 * MIB]
    assert facts.lines[1][found[0].line].line == 33


def test_what_stays_for_a_step_does_not_grow() -> None:
    assert growth(facts_of(trained(steps=6))) == []
    assert growth(facts_of(trained(steps=3, leak=lambda step: f"leak{step}"))) == []  # too few to tell


def test_free_pieces_are_counted_apart() -> None:
    """Four blocks, two of them freed: what is free lies in two pieces."""
    job = Recorder()
    with job.recording():
        for name in "abcd":
            job.alloc(name, 4 * MIB)
        job.free("b")
        job.free("d")
        job.alloc("e", 6 * MIB)
    facts = facts_of(job)
    found = fragments(facts.history, facts.walk, len(job.events) - 1)
    assert (found.free, found.largest_free, found.rounding) == (8 * MIB, 4 * MIB, 0)
    assert needless_calls(facts.history, facts.walk) == 1


def test_fragments_of_the_past_know_the_segments_of_then() -> None:
    job = Recorder()
    with job.recording():
        job.alloc("a", 4 * MIB)
        first = len(job.events) - 1
        job.alloc("b", 4 * MIB)
        job.free("a")
    facts = facts_of(job)
    assert fragments(facts.history, facts.walk, first).free == 0
    assert fragments(facts.history, facts.walk, len(job.events) - 1).free == 4 * MIB


def test_playing_the_recording_unchanged_gives_the_recorded_peak() -> None:
    facts = facts_of(trained(steps=3))
    for one in [played(facts), *with_batch(facts, 1.0)]:
        assert np.array_equal(one.lives.asked, facts.walk.lives.asked)
        assert one.peak == facts.peak_bytes


def test_every_change_says_what_to_write() -> None:
    """And those that `findwall try` writes as a diff are told apart from the others."""
    kinds = [
        transformer(),
        trained(steps=3),
        trained(steps=3, before=False, new_state=lambda step: step == 0),
    ]
    fixes = {one.fix for job in kinds for one in predicted(facts_of(job), memory_edits())}
    assert {"sdpa", "checkpoint-blocks", "sgd", "zero-3"} <= fixes
    assert fixes - {"keep-gradients"} <= memory_patches().keys()
    compile(memory_patches()["accumulate-gradients"], "patch", "exec")
    assert [writes_patch(one) for one in ("fused-optimizer", "bf16-autocast", "sgd")] == [True, True, False]
