"""Transfers below what the link can do."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from findwall.causes.comms import slow_link
from findwall.examine.ranks import compare_ranks, with_ranks
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from sketch import H200, KERNELS, facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
DRAWING = ("oo        oo        oo", "mnnnnnnn  mnnnnnnn  mnnnnnnn")
LINK = 400e9


def ranks(elements: int) -> list[Facts]:
    size = {"collective": "allreduce", "in_elements": elements, "dtype": "Float", "group_size": 2}
    message = {"n": replace(KERNELS["n"], extra=size)}
    ceilings = msgspec.structs.replace(table_ceilings(H200), link_bandwidth=LINK)
    return [
        facts_of(sketch(*DRAWING, steps=STEPS, rank=at, kernels=message), ceilings=ceilings)
        for at in range(2)
    ]


def compared(elements: int) -> Facts:
    both = ranks(elements)
    findings = compare_ranks(both)
    assert findings is not None
    return with_ranks(both[0], findings, 0)


def fires() -> Facts:
    return compared(70_000_000)  # 280 MB in 7 ms: 40 GB/s


def clear() -> Facts:
    return compared(700_000_000)


def cannot_tell() -> Facts:
    return ranks(70_000_000)[0]


def test_what_the_link_must_still_carry_is_the_floor() -> None:
    facts = fires()
    assert "40.0 GB/s over a link that reaches 400 GB/s" in in_words(slow_link.CAUSE, facts)
    assert facts.local()["slow-link"] == pytest.approx(0.9 * facts.spent()["slow-link"])
