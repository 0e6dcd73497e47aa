"""What reading may take: a small file that unpacks to much is refused before it has taken much."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
from trace_samples import HEADER, complete, dump, modern

from findwall.cli.read import bytes_of
from findwall.errors import InputError
from findwall.readers import allowance, open_run
from findwall.readers.allowance import GIB, MIB, ROW_BYTES, Allowance
from findwall.readers.torch_trace import assembling, many_names, read_trace, text_blocks


def kernels(count: int, name: str = "k") -> bytes:
    row = b'{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d,"dur":1}'
    rows = (row % (name.replace("#", str(at)).encode(), 2 * at) for at in range(count))
    return b'{"traceEvents":[' + b",".join(rows) + b"]}"


def test_more_events_than_fit_are_refused_before_they_are_held(tmp_path: Path) -> None:
    bomb = tmp_path / "trace.json.gz"
    row = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1},'
    bomb.write_bytes(gzip.compress(b'{"traceEvents":[' + row * 400_000 + row[:-1] + b"]}"))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="holds more events than 20 MiB") as refusal:
            read_trace(bomb, workers=1, allowance=Allowance(20 * MIB))
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB  # a block being decoded, and little else
    finally:
        tracemalloc.stop()
    assert "--max-memory 1G" in refusal.value.hint and "fewer steps" in refusal.value.hint


def test_what_fits_is_read_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kernels(1000))
    enough = Allowance(2 * ROW_BYTES * 1000)
    assert len(read_trace(path, allowance=enough).events) == 1000
    assert enough.rows == 1000 and enough.taken >= 1000 * ROW_BYTES


def test_long_text_with_few_events_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "FREE_TEXT_BYTES", 4 * MIB)
    path = tmp_path / "trace.json.gz"
    arrows = b'{"ph":"s","id":1,"ts":5},' * 600_000
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + arrows + kernels(1)[16:], compresslevel=1))
    with pytest.raises(InputError, match="hardly a trace"):
        read_trace(path)


def test_text_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MOST_TEXT_BYTES", 1000)
    path = tmp_path / "trace.json"
    path.write_bytes(kernels(100))
    with pytest.raises(InputError, match="more than 0 MiB of text"):
        read_trace(path)


@pytest.mark.parametrize("order", ["as written", "device first", "backwards"])
def test_of_a_long_recording_the_first_part_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    rows = modern(steps=40)
    if order == "device first":
        rows.sort(key=lambda row: str(row.get("cat")) != "kernel")
    elif order == "backwards":
        rows.reverse()
    path = tmp_path / "trace.json"
    path.write_bytes(dump(rows, HEADER))
    whole = read_trace(path)
    monkeypatch.setattr(assembling, "MOST_ROWS", 100)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(text_blocks, "_TAIL_BYTES", 200)
    allowed = Allowance()
    part = read_trace(path, workers=0, allowance=allowed)
    until = int(part.events.start.max())
    assert 20 <= len(part.events) <= 100
    assert len(part.events) == int((whole.events.start <= until).sum())
    assert part.quality.ignored[assembling.LATER] == whole.quality.kept - part.quality.kept
    assert allowed.rows == whole.quality.kept and allowed.taken < 120 * ROW_BYTES + 100_000
    assert any("The recording is long" in note for note in part.quality.notes)


def test_an_endless_blank_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b" " * (100 << 20), compresslevel=1))
    with pytest.raises(InputError, match="blank"):
        read_trace(path)


def test_ranks_share_what_is_allowed(tmp_path: Path) -> None:
    """Those that fit are read; one that does not takes nothing from the next."""
    for rank, count in enumerate((100, 5000, 100)):
        info = {**HEADER, "distributedInfo": {"rank": rank, "world_size": 3}}
        rows = [complete("kernel", "k", str(2 * at), "1", pid=0) for at in range(count)]
        (tmp_path / f"rank{rank}.json").write_bytes(dump(rows, info))
    run = open_run([tmp_path], max_memory=400 * ROW_BYTES)
    assert [rank.number for rank in run.ranks] == [0, 2]
    assert any("rank1.json holds more events than" in note for note in run.notes)


def test_too_many_names_are_folded_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_names, "MOST_DEVICE_NAMES", 10)
    path = tmp_path / "trace.json"
    path.write_bytes(kernels(50, "kernel_#").replace(b'"ts":60,"dur":1', b'"ts":60,"dur":2'))
    timeline = read_trace(path)
    assert len(timeline.events) == 50 and len(timeline.names) == 11
    assert {"kernel_30", many_names.OTHERS} <= set(timeline.names)
    assert any("50 distinct names: the 40 that took least" in note for note in timeline.quality.notes)


@pytest.mark.parametrize(
    ("text", "count"), [("8G", 8 * GIB), ("512m", 512 * MIB), ("1.5 GiB", 3 * GIB // 2), ("1000000", 10**6)]
)
def test_a_size_as_people_write_it(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1G", "much", "1e9", "nan", "8X"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a size"):
        bytes_of(text)
