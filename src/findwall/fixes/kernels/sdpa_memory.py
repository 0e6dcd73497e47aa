"""Attention in a fused kernel: the matrices of queries by keys are never written."""

from __future__ import annotations

from collections.abc import Iterator

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_ladder import Rung, rung
from findwall.memory.played_memory import played
from findwall.memory.written_out_attention import written_out


def _sdpa(facts: DeviceMemoryFacts) -> Iterator[Rung]:
    found = written_out(facts)
    if found is not None:
        # A fused backward works in tiles as well.
        likely = played(facts).without(found.matrices | found.in_backward).peak
        most = played(facts).without(found.matrices).peak
        yield rung("sdpa", likely, most, line=found.line, count=found.times)


PATCHES = {"sdpa": "F.scaled_dot_product_attention(query, key, value)"}
RUNGS = (_sdpa,)
