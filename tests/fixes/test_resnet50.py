"""A ResNet-50 as most people write it first, and the recipe for it: each fix alone, and together."""

from __future__ import annotations

from functools import cache
from math import log

import pytest

from captures import FIXTURES
from findwall.examine import examine
from findwall.readers import open_run

# ms a step on an H200, batch 128, each fix really made in the script; the plain job took 60.4.
MEASURED = {
    "bf16-autocast": 55.4,
    "channels-last": 42.5,
    "bf16-autocast,channels-last": 29.6,
    "torch-compile": 35.6,
    "bf16-autocast,channels-last,torch-compile": 20.6,
}
PLAIN_MS = 60.4
NEAR = 0.15


@cache
def predicted(fixes: str) -> tuple[float, float, float]:
    found = examine(open_run([FIXTURES / "resnet50_default"]), what_if=fixes).what_if
    assert found is not None and found.step_ms.mid is not None
    assert found.step_ms.low is not None and found.step_ms.high is not None
    return found.step_ms.low, found.step_ms.mid, found.step_ms.high


@pytest.mark.parametrize("fixes", MEASURED)
def test_each_fix_is_predicted_near_what_it_gives(fixes: str) -> None:
    low, mid, high = predicted(fixes)
    assert abs(log(mid / MEASURED[fixes])) < NEAR
    assert low < mid < high


def test_bf16_alone_is_the_least_of_them() -> None:
    """In NCHW 16-bit images cost layout copies, and norms are slower: with channels-last it pays."""
    alone, turned = predicted("bf16-autocast")[1], predicted("channels-last")[1]
    both = predicted("bf16-autocast,channels-last")[1]
    assert both < turned < alone < PLAIN_MS
