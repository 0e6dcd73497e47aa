"""cudaMalloc and cudaFree inside the step."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.walls import allocator
from sketch import facts_of, sketch

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
    assert "empty_cache()" in allocator.sentence(fires())


def test_mallocs_alone_point_at_fragmentation() -> None:
    facts = facts_of(
        sketch(cpu="ommmmo    ommmmo    ommmmo    ", gpu="m    m    m    m    m    m    ", steps=STEPS)
    )
    assert "expandable_segments" in allocator.sentence(facts)
