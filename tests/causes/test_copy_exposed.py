"""Copies to the device with nothing beside them."""

from __future__ import annotations

from findwall.causes.data import copy_exposed
from findwall.facts.facts import Facts
from sketch import facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "
CPU = "cccco    cccco    cccco    "
GPU = ".hhhmm   .hhhmm   .hhhmm"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    """A pinned copy on its own stream, under the previous step's work."""
    gpu = """
mmmmmmmmMmmmmmmmmMmmmmmmmm
   iii      iii      iii
"""
    return facts_of(sketch(cpu="oo       oo       oo", gpu=gpu, steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu="u   u    u   u    u   u ", steps=STEPS))


def test_pageable_memory_asks_for_pinned() -> None:
    facts = fires()
    assert "pin_memory=True" in in_words(copy_exposed.CAUSE, facts)
    assert "9.0 MB per step at 3.0 GB/s" in evidence_of(copy_exposed.CAUSE, facts)[0]


def test_an_exposed_pinned_copy_asks_for_overlap() -> None:
    facts = facts_of(sketch(cpu="oo       oo       oo", gpu="iiimm    iiimm    iiimm", steps=STEPS))
    assert "on its own stream" in in_words(copy_exposed.CAUSE, facts)
