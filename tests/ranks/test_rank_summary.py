"""A rank's summary: small, the same when it is read again, and refused when it is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.summaries.rank_summary import (
    COLUMNS,
    GRAIN_NS,
    Label,
    Messages,
    RankSummary,
    decode,
    encode,
)
from findwall.readers.allowance import Allowance
from findwall.readers.rank_summaries import accepts, read, write_summary


def summary(rows: int, seed: int = 0) -> RankSummary:
    """As irregular as a trace is: every time is noisy to a tenth of a microsecond."""
    chance = np.random.default_rng(seed)
    launched = np.cumsum(chance.integers(1, 10_000, rows)) * GRAIN_NS
    waits = chance.integers(0, 20_000, rows) * GRAIN_NS
    start = launched + chance.integers(50, 1_000, rows) * GRAIN_NS
    ready = start - np.cumsum(waits) + waits
    share = [chance.integers(0, 300, rows).cumsum() * GRAIN_NS for _ in range(4)]
    hold = np.arange(rows) // 20 * 20  # where the host was last held: once a step
    hosted = launched - launched[hold] + chance.integers(50, 1_000, rows) * GRAIN_NS
    columns = [
        chance.integers(0, 3, rows),
        np.arange(rows) // 20,
        launched,
        start,
        start + waits,
        ready,
        ready + chance.integers(0, 10, rows) * GRAIN_NS,
        ready[hold],
        hosted,
        np.where(np.arange(rows) == hold, ready - ready[np.maximum(hold - 20, 0)], -GRAIN_NS),
        chance.integers(0, 2, rows),
        np.zeros(rows, np.int64),
        *share,
    ]
    labels = (Label("all_reduce", "world", 1 << 20), Label("send", "pp", 7, 3), Label("all_gather"))
    messages = Messages(
        **{name: np.asarray(one, np.int64) for name, one in zip(COLUMNS, columns, strict=True)}
    )
    return RankSummary(messages, labels, rank=3, world_size=8, path="r3.json", steps=100, step_ns=1e6)


def same(one: RankSummary, two: RankSummary) -> bool:
    columns = all((getattr(one.messages, name) == getattr(two.messages, name)).all() for name in COLUMNS)
    return columns and replace(one, messages=two.messages) == two


@given(st.integers(0, 300), st.integers(0, 5))
def test_what_is_written_is_read_again(rows: int, seed: int) -> None:
    made = summary(rows, seed)
    assert same(made, decode(encode(made), "x"))


def test_two_thousand_communications_take_64_kilobytes_and_more_24_bytes_each() -> None:
    few, many = len(encode(summary(2_000))), len(encode(summary(20_000)))
    assert few <= 64_000
    assert (many - few) / 18_000 <= 24


@pytest.mark.parametrize("at", [25, 60, 200, 600])
def test_damage_is_refused(at: int) -> None:
    raw = bytearray(encode(summary(50)))
    for broken in (bytes(raw[:at]), b"not one"):
        with pytest.raises(InputError):
            decode(broken, "x")


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("findwall.model.summaries.rank_summary.VERSION", 99)
    raw = encode(summary(3))
    monkeypatch.undo()
    with pytest.raises(InputError, match="version 99"):
        decode(raw, "x")


def test_a_summary_is_a_rank_without_a_trace(tmp_path: Path) -> None:
    path = write_summary(summary(10), tmp_path, 0)
    assert path.name == "rank3.fwrank" and accepts(path, path.read_bytes()[:256])
    run = read(path, None, None, Allowance())
    assert run.first.timeline is None and run.first.number == 3
    assert run.first.summary is not None and same(run.first.summary, summary(10))
