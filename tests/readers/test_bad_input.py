"""Damaged, wrong and hostile input: a clear refusal or a result with a note, never a traceback."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from timeline_checks import check_consistent, same_timeline
from trace_samples import Number, complete, dump, modern, save

from findwall.errors import InputError
from findwall.model.events import Kind, Timeline
from findwall.readers import raw_file
from findwall.readers.torch_trace import read_trace
from soak.hang import hang_guard

DAY_US = 86_400_000_000
GOOD = [
    complete("kernel", f"k{n}", f"{1000 + n}.5", "0.25", pid=0, args={"device": 0, "stream": 7})
    for n in range(9)
]


def read_text(tmp_path: Path, text: bytes) -> Timeline:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    timeline = read_trace(path)
    check_consistent(timeline)
    return timeline


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"hello, world", "not JSON"),
        (b"\x00\x01\x02\x03" * 50, "not JSON"),
        (b"<html></html>", "not JSON"),
        (b"{}", "no traceEvents"),
        (b'{"a": {"b": [1, 2]}}', "no traceEvents"),
        (b'{"traceEvents": []}', "no whole event"),
        (b'{"traceEvents": [', "no whole event"),
        (b'{"traceEvents": [{"ph": "X", "na', "no whole event"),
        (b"[]", "no whole event"),
        (b"[1, 2, 3]", "none that lasts"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "none that lasts"),
        (b'{"traceEvents": 5}', "no traceEvents"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b\x08garbage that is no gzip at all", "is empty"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    assert says in refusal(path).message


def test_missing_and_other_things(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere.json").message
    assert "neither a file nor a pipe" in refusal(Path("/dev/null")).message
    assert "neither a file nor a pipe" in refusal(tmp_path).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = save(tmp_path / "t.json", GOOD)
    path.chmod(0)
    assert "no permission" in refusal(path).message


def test_no_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(raw_file.os, "open", refuse)
    assert "no permission" in refusal(tmp_path / "t.json").message


def test_zstd_without_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    monkeypatch.setitem(__import__("sys").modules, "compression", None)
    path = tmp_path / "t.json"
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    assert "findwall[zstd]" in refusal(path).hint


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_works(tmp_path: Path, packed: bool) -> None:
    text = dump(modern())
    expected = read_text(tmp_path, text)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(text) if packed else text,))
    writer.start()
    found = read_trace(pipe)
    writer.join()
    assert same_timeline(expected, found)


def test_a_silent_pipe_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "_FIRST_BYTE_S", 0.05)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keep_open = os.open(pipe, os.O_RDWR)
    try:
        assert "pipe" in refusal(pipe).message
    finally:
        os.close(keep_open)
    assert "pipe" in refusal(pipe).message  # nobody has it open for writing


def test_cut_anywhere_keeps_every_whole_event(tmp_path: Path) -> None:
    text = dump(GOOD)
    ends = [text.index(b'"k%d"' % n) for n in range(9)]
    ends = [text.index(b"\n  }", end) + 4 for end in ends]
    for place in range(ends[0], len(text) - 1, 7):
        whole = sum(end <= place for end in ends)
        timeline = read_text(tmp_path, text[:place])
        assert len(timeline.events) == whole
        assert timeline.quality.cut_off, place
        assert any("cut off" in note for note in timeline.quality.notes)


def test_a_cut_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    text = dump(modern(steps=40))
    packed = gzip.compress(text)
    for share in (0.3, 0.7, 0.99):
        timeline = read_text(tmp_path, packed[: int(len(packed) * share)])
        assert timeline.quality.cut_off
        assert timeline.quality.events > 100 * share
        assert any("compressed file is cut off" in note for note in timeline.quality.notes)


def test_a_damaged_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(dump(modern(steps=40))))
    packed[len(packed) // 2] ^= 0xFF
    timeline = read_text(tmp_path, bytes(packed))
    assert timeline.quality.cut_off
    assert any("damaged" in note for note in timeline.quality.notes)


def test_a_wrong_checksum_is_said(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(dump(GOOD)))
    packed[-6] ^= 1
    timeline = read_text(tmp_path, bytes(packed))
    assert len(timeline.events) == 9
    assert any("damaged" in note for note in timeline.quality.notes)


def with_event(event: dict[str, object] | bytes) -> bytes:
    """Nine good kernels with one odd event between them."""
    text = dump([*GOOD[:5], {"@": 1}, *GOOD[5:]])
    odd = event if isinstance(event, bytes) else dump([event], style="array")[1:-1]
    return text.replace(b'{"@": 1}', odd)


@pytest.mark.parametrize(
    ("ts", "dur"),
    [
        ("NaN", "1"),
        ("5", "nan"),
        ("5", "Infinity"),
        ("5", "-1"),
        ("5", "-0.001"),
        ("1e300", "1"),
        ("99999999999999999999999", "1"),
        ("5", "99999999999999999999"),
        ("5", "1e30"),
        ("null", "1"),
        ("[1]", "1"),
        ('{"a": 1}', "1"),
        ('"soon"', "1"),
        ("true", "1"),
        (str(20 * DAY_US), "1"),
        ("5", str(2 * DAY_US)),
    ],
)
def test_an_impossible_time_costs_one_event(tmp_path: Path, ts: str, dur: str) -> None:
    odd = complete("kernel", "odd", ts, dur, pid=0, args={"device": 0, "stream": 7})
    timeline = read_text(tmp_path, with_event(odd))
    assert len(timeline.events) == 9
    assert timeline.quality.damaged == 1
    assert any("damaged" in note for note in timeline.quality.notes)
    assert timeline.events.end.max() == 8250


@pytest.mark.parametrize("ts", [Number("1.0005e3"), "1000.5", Number("1000.50000"), Number("1000.5001")])
def test_an_unusual_time_is_read(tmp_path: Path, ts: str) -> None:
    odd = complete("kernel", "odd", "0", "1", pid=0, args={"device": 0, "stream": 7})
    timeline = read_text(tmp_path, with_event({**odd, "ts": ts}))
    assert len(timeline.events) == 10
    assert timeline.events.start[timeline.names.index("odd")] == 0


def test_missing_durations_are_counted(tmp_path: Path) -> None:
    event = complete("kernel", "odd", "1001", "1")
    del event["dur"]
    timeline = read_text(tmp_path, with_event(event))
    assert (len(timeline.events), timeline.quality.damaged) == (9, 1)


@pytest.mark.parametrize("value", ["nan", "-inf", "Infinity", "NaN", "inf"])
def test_bare_numbers_in_an_argument_cost_the_argument(tmp_path: Path, value: str) -> None:
    args = {
        "device": 0,
        "stream": 7,
        "correlation": 5,
        "blocks per SM": Number(value),
        "grid": [Number(value), 1, 1],
    }
    timeline = read_text(tmp_path, with_event(complete("kernel", "odd", "1001", "1", pid=0, args=args)))
    row = [timeline.name_of(r) for r in range(10)].index("odd")
    assert timeline.events.correlation[row] == 5
    assert timeline.quality.damaged == 0
    assert timeline.quality.repaired >= 1
    assert timeline.launch_of(row) is not None


@pytest.mark.parametrize(
    "wrong", ["text", [1, 2], {"a": 1}, None, True, Number("1.5"), Number("1e400"), 2**70]
)
@pytest.mark.parametrize("name", ["cat", "name", "pid", "tid", "args"])
def test_wrong_types_cost_the_field(tmp_path: Path, name: str, wrong: object) -> None:
    event = complete("kernel", "odd", "1001", "1", pid=0, args={"device": 0, "stream": 7})
    timeline = read_text(tmp_path, with_event({**event, name: wrong}))
    assert len(timeline.events) == 10
    assert timeline.quality.damaged == 0


@pytest.mark.parametrize(
    "wrong", ["text", [1, 2], {"a": 1}, None, Number("1.5"), Number("1e400"), 2**63, 2**70]
)
@pytest.mark.parametrize("name", ["correlation", "stream", "device", "bytes", "External id", "graph node id"])
def test_wrong_types_cost_the_argument(tmp_path: Path, name: str, wrong: object) -> None:
    args = {"device": 0, "stream": 7, "correlation": 3, "External id": 4, name: wrong}
    timeline = read_text(tmp_path, with_event(complete("kernel", "odd", "1001", "1", pid=0, args=args)))
    row = [timeline.name_of(r) for r in range(10)].index("odd")
    events = timeline.events
    assert len(events) == 10
    assert timeline.quality.repaired == 1
    found = {"correlation": events.correlation, "External id": events.external}
    for other, column in found.items():
        assert column[row] == (-1 if other == name else args[other])


def test_what_is_no_event_is_counted(tmp_path: Path) -> None:
    text = dump(GOOD).replace(b'  {"ph"', b'  null, 5, "text", [1, {"ph": 2}], {"ph"', 1)
    timeline = read_text(tmp_path, text)
    assert len(timeline.events) == 9
    assert timeline.quality.damaged == 4


@pytest.mark.parametrize(
    "broken",
    [
        b'{"ph": "X", "ts": 1,, "dur": 2}',
        b'{"ph": "X", "name": "no end, "ts": 1, "dur": 2}',
        b'{"ph": "X", "ts": 1 "dur": 2}',
        b'{"ph": "X", "ts": @, "dur": 2}',
        b'{"ts": 1, "dur": 2, "name": "no phase"}',
        b'{"ph": "X", "args": [{"a": 1}, {"b": }], "dur": 2}',
        b'{"ph": "X", "args": {"a": 1}, "dur": 2',
    ],
)
def test_a_broken_event_costs_itself(tmp_path: Path, broken: bytes) -> None:
    timeline = read_text(tmp_path, with_event(broken))
    assert len(timeline.events) >= 8  # one without its end may take its neighbour along
    assert timeline.quality.damaged >= 1
    assert not timeline.quality.cut_off


@pytest.mark.parametrize(
    "name",
    [
        b"C:\\Users\\me",
        b"a\tb\nc",
        b"caf\xe9 \xff\xfe",
        b"\\ud800 alone",
        b"nul \x00 byte",
        "größe ✓".encode(),
    ],
)
def test_odd_bytes_in_a_name_do_not_cost_the_event(tmp_path: Path, name: bytes) -> None:
    event = dump([complete("kernel", "@", "1001", "1", pid=0)], style="array")[1:-1].replace(
        b'"@"', b'"%b"' % name
    )
    timeline = read_text(tmp_path, with_event(event))
    assert len(timeline.events) == 10
    assert timeline.quality.damaged == 0


def test_a_zero_byte_in_an_argument(tmp_path: Path) -> None:
    event = complete("cpu_op", "odd", "1001", "1", args={"Input type": ["@"], "Input Dims": [[1]]})
    text = with_event(event).replace(b'"@"', b'"a\0b"')
    timeline = read_text(tmp_path, text)
    assert len(timeline.events) == 10


def test_unknown_phases_are_counted(tmp_path: Path) -> None:
    timeline = read_text(tmp_path, with_event({"ph": "Q", "name": "what"}))
    assert timeline.quality.ignored["unknown"] == 1


def test_an_event_longer_than_a_block(tmp_path: Path) -> None:
    long = complete("cpu_op", "x" * 5_000_000, "1001", "1", args={"Input Dims": [[1]] * 200_000})
    timeline = read_text(tmp_path, with_event(long))
    assert len(timeline.events) == 10
    assert not timeline.quality.notes


@pytest.mark.parametrize(
    "piece",
    [
        b"xyz ",
        b"{",
        b'{"ph":[',
        b'{"a":[{"b":1},',
        b"{}",
        b'"traceEvents":[{"a":"',
        b'{"ph":"X","name":"a},{',
        b'{"ph":"X","ts":@},',
        b'{"ph":"X","args":[nan,{"b":1}]},',
        b'"',
        b"\\",
        b" ",
        b'{"ph":"X","a":{"b":{},"c":[{},{},{"d":"},{"}]}},{,',
    ],
)
@pytest.mark.parametrize("tail", [b"", b"]}"])
def test_hostile_text_is_read_to_its_end(tmp_path: Path, piece: bytes, tail: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents":[' + piece * (300_000 // len(piece)) + tail)
    with hang_guard(), pytest.raises(InputError):
        read_trace(path)


def test_deep_nesting_does_not_overflow(tmp_path: Path) -> None:
    deep = b'{"ph": "X", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    timeline = read_text(tmp_path, with_event(deep))
    assert len(timeline.events) == 9
    assert timeline.quality.damaged >= 1


def test_repeated_device_events_are_said(tmp_path: Path) -> None:
    timeline = read_text(tmp_path, dump([*GOOD, *GOOD]))
    assert len(timeline.rows(Kind.KERNEL)) == 18
    assert any("9 of 18 device events appear more than once" in note for note in timeline.quality.notes)


def test_a_broken_header_costs_the_header(tmp_path: Path) -> None:
    text = dump(GOOD).replace(b'"rank": 3', b'"rank": @')
    timeline = read_text(tmp_path, text)
    assert len(timeline.events) == 9
    assert timeline.header.rank is None
    assert any("before the events" in note for note in timeline.quality.notes)


def test_header_values_of_the_wrong_type_are_unknown(tmp_path: Path) -> None:
    header = {
        "deviceProperties": [{"id": "zero"}, 5, {"id": 1, "name": "NVIDIA B200", "numSms": "many"}],
        "distributedInfo": {"rank": -1, "world_size": 2.5, "backend": 7},
        "baseTimeNanoseconds": "yesterday",
        "record_shapes": "yes",
        "schemaVersion": None,
    }
    found = read_text(tmp_path, dump(GOOD, header)).header
    assert [device.name for device in found.devices] == ["NVIDIA B200"]
    assert found.devices[0].sm_count is None
    assert (found.rank, found.world_size, found.backend, found.shapes) == (None, None, None, None)
