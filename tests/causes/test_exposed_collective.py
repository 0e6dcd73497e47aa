"""Collectives with nothing beside them."""

from __future__ import annotations

import pytest

from findwall.causes.comms import exposed_collective
from findwall.facts.facts import Facts
from sketch import facts_of, sketch
from speaking import in_words, texts

STEPS = "|        |        |        "
CPU = "oo       oo       oo"
GPU = "mmmnnnn  mmmnnnn  mmmnnnn"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    gpu = """
mmmmmmmmmMMMMMMMMMmmmmmmmm
 nnnn     nnnn     nnnn
"""
    return facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="mmmuuuu  mmmuuuu  mmmuuuu", steps=STEPS))


def test_one_rank_says_what_it_cannot_know() -> None:
    assert "one rank alone cannot tell" in in_words(exposed_collective.CAUSE, fires())


def test_a_slice_shared_with_a_kernel_is_the_kernels() -> None:
    gpu = """
mmmm     mmmm     mmmm
  nnnn     nnnn     nnnn
"""
    facts = facts_of(sketch(cpu=CPU, gpu=gpu, steps=STEPS))
    assert facts.spent_ms("exposed-collective") == pytest.approx(2, abs=0.01)


def test_a_collective_on_the_host_is_one_too() -> None:
    """Its waits and the copies that take its data through the host are not the job's own."""
    facts = facts_of(
        sketch(
            cpu="o qqqqqqo  o qqqqqqo  o qqqqqqo   \n  s    c     s    c     s    c",
            gpu="mm b   h m mm b   h m mm b   h m",
            steps="|          |          |          ",
        ),
        step_ms=11,
    )
    assert facts.spent_ms("exposed-collective") == pytest.approx(6, abs=0.1)
    assert facts.spent_ms("host-sync") == facts.spent_ms("copy-exposed") == 0
    text = in_words(exposed_collective.CAUSE, facts)
    assert "(gloo:all_reduce)" in text and "Use the NCCL backend with one GPU per rank" in text
    first, *others = exposed_collective.CAUSE.evidence(facts)
    assert first.op == "gloo:all_reduce" and first.ms == pytest.approx(4, abs=0.1)
    assert texts([first])[0].startswith("gloo:all_reduce: 1 call")
    assert len(others) == 2 and all("Memcpy" in text for text in texts(others))
