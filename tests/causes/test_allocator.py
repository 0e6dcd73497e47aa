"""cudaMalloc and cudaFree inside the step."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.causes.overhead import allocator
from findwall.facts.facts import Facts
from findwall.fixes import NoUse
from findwall.fixes.host import keep_cache
from findwall.machine.environment import look_at_variables
from findwall.model.machine import Environment
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
CPU = "offfmmmo  offfmmmo  offfmmmo  "
GPU = "mmm    m  mmm    m  mmm    m  "


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    """The same calls while the device has work cost nothing."""
    return facts_of(
        sketch(cpu="omm       omm       omm       ", gpu="mmmmmmmmmmMMMMMMMMMMmmmmmmmmmm", steps=STEPS)
    )


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_frees_point_at_empty_cache() -> None:
    assert "empty_cache()" in in_words(allocator.CAUSE, fires())


def test_mallocs_alone_point_at_fragmentation() -> None:
    facts = facts_of(
        sketch(cpu="ommmmo    ommmmo    ommmmo    ", gpu="m    m    m    m    m    m    ", steps=STEPS)
    )
    assert "expandable_segments" in in_words(allocator.CAUSE, facts)


def test_a_cache_that_is_switched_off_is_switched_on() -> None:
    """Nobody empties a cache that is not there: the variable says why memory comes and goes."""
    found = tuple(look_at_variables({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}))
    facts = fires()
    off = replace(facts, run=replace(facts.run, environment=Environment(found)))
    advice = keep_cache.FIX.advise(off)
    assert not isinstance(advice, NoUse)
    for said in (in_words(allocator.CAUSE, off), in_words(advice)):
        assert "unset PYTORCH_NO_CUDA_MEMORY_CACHING" in said and "empty_cache" not in said


def test_the_sentence_counts_the_calls_that_the_fix_counts() -> None:
    facts = facts_of(sketch(cpu="offmmfmo  " * 3, gpu="mmm    m  " * 3, steps=STEPS))
    advice = keep_cache.FIX.advise(facts)
    assert not isinstance(advice, NoUse)
    assert "2 cudaFree and 2 cudaMalloc calls" in in_words(advice)
    assert "asks the driver for memory 2 times and gives it back 2 times" in in_words(allocator.CAUSE, facts)
