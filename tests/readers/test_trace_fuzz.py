"""Real and made traces, damaged in many ways: refused clearly or read consistently, never worse.

FINDWALL_FUZZ_EXAMPLES sets how many ways are tried for each kind of damage; `make soak` tries thousands.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.model.events import Timeline
from findwall.readers.torch_trace import read_trace
from findwall.readers.torch_trace import text_blocks as blocks
from soak.chance import Drawn
from soak.traces import (
    change_bytes,
    cut_and_put,
    damage_gzip,
    mutate_and_examine,
    retype_fields,
    samples,
    survives,
)

FUZZ = drawn(80)
numbers = st.integers(0, 10**4).map(lambda number: number % len(samples()))  # a failure prints no text


@lru_cache
def whole(sample: int) -> Timeline:
    with NamedTemporaryFile() as file:
        file.write(samples()[sample])
        file.flush()
        return read_trace(Path(file.name), workers=1)


def _durations(timeline: Timeline) -> Counter[tuple[str, int]]:
    rows = zip(timeline.events.name.tolist(), timeline.events.duration.tolist(), strict=True)
    return Counter((timeline.names[name], duration) for name, duration in rows)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 5000)  # several blocks even in a small file
    monkeypatch.setattr(blocks, "_TAIL_BYTES", 1500)
    return tmp_path / "trace.json"


@pytest.mark.parametrize("damage", [change_bytes, cut_and_put, damage_gzip, retype_fields])
@FUZZ
@given(data=st.data(), sample=numbers)
def test_damaged_text(target: Path, damage, data: st.DataObject, sample: int) -> None:
    survives(target, damage(samples()[sample], Drawn(data)))


@FUZZ
@given(data=st.data(), sample=numbers)
def test_cut_off(target: Path, data: st.DataObject, sample: int) -> None:
    text = samples()[sample]
    timeline = survives(target, text[: data.draw(st.integers(0, len(text)))])
    if timeline is not None:
        assert _durations(timeline) <= _durations(whole(sample))  # nothing is made up


@FUZZ
@given(content=st.binary(max_size=300))
def test_anything_at_all(target: Path, content: bytes) -> None:
    survives(target, content)
    survives(target, b'{"traceEvents": [' + content)
    survives(target, b"\x1f\x8b\x08\x00" + content)


@drawn(50)  # each is examined too
@given(data=st.data())
def test_structure_changed(tmp_path: Path, data: st.DataObject) -> None:
    """Valid text that no profiler wrote, through the whole examination: no figure that cannot be."""
    mutate_and_examine(tmp_path / "trace.json", Drawn(data))
