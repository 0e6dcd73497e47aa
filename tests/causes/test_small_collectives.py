"""Many tiny messages."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.causes.comms import small_collectives
from findwall.facts.facts import Facts
from sketch import KERNELS, facts_of, sketch
from speaking import in_words

STEPS = "|" + " " * 23 + "|" + " " * 23 + "|" + " " * 23
CPU = "o" * 12 + " " * 12
GPU = "nN" * 6 + " " * 12


def sized(elements: int | None) -> Facts:
    size = {"collective": "allreduce", "in_elements": elements, "dtype": "Float"} if elements else {}
    message = replace(KERNELS["n"], extra=size)
    return facts_of(sketch(cpu=CPU * 3, gpu=GPU * 3, steps=STEPS, kernels={"n": message}, us=50))


def fires() -> Facts:
    return sized(1024)


def clear() -> Facts:
    return sized(10_000_000)


def cannot_tell() -> Facts:
    return sized(None)


def test_names_count_and_size() -> None:
    text = in_words(small_collectives.CAUSE, fires())
    assert "12 collectives of 4.1 kB" in text


def test_without_sizes_it_stays_exposed() -> None:
    assert cannot_tell().spent_ms("exposed-collective") > 0
