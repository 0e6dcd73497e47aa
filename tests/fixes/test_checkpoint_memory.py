"""Blocks that are computed again: what of them stays, when they come back and when they are gone."""

from __future__ import annotations

import numpy as np

from findwall.fixes.less_work.checkpoint_memory import RUNGS
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.repeated import Blocks, repeated_blocks
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from memory_samples import BACKWARD, BUILD, MAIN, MIB, STEP, Recorder, Stack, cpp_pickle

BLOCKS, WEIGHT, SIZE, STATISTIC = 3, 5 * MIB, 16 * MIB, 4096


def op(name: str, line: int = 9) -> Stack:
    return f"at::_ops::{name}::call(...)", f"model.py:{line}:forward", MAIN


def back(name: str) -> Stack:
    return f"at::_ops::{name}::call(...)", "Engine::thread_main()"


def norm(part: str) -> Stack:
    return f"at::{part}(...)", *op("native_batch_norm")


def blocks_of_linear_relu_norm(sums: bool = False) -> DeviceMemoryFacts:
    """Each keeps what relu and the norm make; the norm's deviation is made last, and is not the result."""
    job = Recorder()
    with job.recording():
        job.alloc("weight", WEIGHT, BUILD)
        job.alloc("first", SIZE, op("linear", 5))
        for block in range(BLOCKS):
            job.alloc("passing", SIZE, op("linear"))
            job.alloc(f"relu{block}", SIZE, op("relu"))
            job.free("passing")
            job.alloc(f"norm{block}", SIZE, norm("empty_like"))
            job.alloc(f"deviation{block}", STATISTIC, norm("empty"))
        for block in reversed(range(BLOCKS)):
            job.alloc("of norm", SIZE, back("native_batch_norm_backward"))
            job.free(f"norm{block}", BACKWARD)
            job.free(f"deviation{block}", BACKWARD)
            job.alloc("of relu", SIZE, back("threshold_backward"))
            job.free("of norm", BACKWARD)
            if sums:
                job.alloc("sum", 2 * SIZE, back("sum_dim_IntList"))
                job.free("sum", BACKWARD)
            job.free(f"relu{block}", BACKWARD)
            job.free("of relu", BACKWARD)
        job.alloc("gradient", WEIGHT, back("mm"))
        job.free("first", BACKWARD)
        job.alloc("update", MIB, STEP)
        job.free("update", STEP)
    return device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[0]


def found(facts: DeviceMemoryFacts) -> Blocks:
    blocks = repeated_blocks(facts)
    assert blocks is not None
    return blocks


def test_the_result_of_a_block_is_no_statistic_beside_it() -> None:
    facts = blocks_of_linear_relu_norm()
    blocks = found(facts)
    assert blocks.times == BLOCKS
    assert [sorted(facts.walk.lives.asked[rows].tolist()) for rows in blocks.rows] == [
        [STATISTIC, SIZE]
    ] * BLOCKS


def test_a_block_begins_where_the_one_before_it_ends() -> None:
    """With what it makes and gives back before the first thing that backward waits for: the first as well."""
    facts = blocks_of_linear_relu_norm()
    blocks, lives = found(facts), facts.walk.lives
    passing = lives.born[
        (lives.asked == SIZE) & (facts.kinds == np.uint8(6)) & (lives.born < blocks.ends[-1])
    ]
    begun = [
        [one for one in passing.tolist() if start <= one < end]
        for start, end in zip(blocks.starts, blocks.ends, strict=True)
    ]
    assert [len(one) for one in begun] == [1] * BLOCKS


def test_a_block_comes_back_before_the_op_that_asks_for_it_makes_anything() -> None:
    """At the most: the first and two results, and of the last block what its linear and its relu make."""
    facts = blocks_of_linear_relu_norm()
    (rung,) = (one for edit in RUNGS for one in edit(facts))
    assert rung.mid == WEIGHT + (1 + BLOCKS + 2) * SIZE


def test_what_came_back_is_gone_before_autograd_sums() -> None:
    with_sums, without = (blocks_of_linear_relu_norm(sums) for sums in (True, False))
    peaks = [one.mid for facts in (with_sums, without) for edit in RUNGS for one in edit(facts)]
    assert peaks[0] == peaks[1]
