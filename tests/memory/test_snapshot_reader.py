"""Snapshots of all versions come out alike; what cannot be read is one line and exit code 2."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from findwall import cli
from findwall.errors import InputError
from findwall.memory.device_memory import device_memory
from findwall.memory.snapshots.pickled_values import RefusedError
from findwall.model.memory_history import KINDS, SNAPSHOT, MemoryHistory, SnapshotRun
from findwall.readers import open_run
from findwall.readers.reader import reader_of
from memory_samples import (
    MIB,
    Recorder,
    as_signed,
    build,
    cpp_pickle,
    decoded,
    document_of,
    expandable,
    moved,
    stacks_of_allocations_alone,
    torch_2_0,
    torch_2_15,
    train_step,
    trained,
    without_free_requested,
    write,
)


def figures(history: MemoryHistory) -> dict[str, Any]:
    """What must not depend on who wrote it."""
    facts = device_memory(history)[0]
    sizes = np.bincount(facts.kinds[facts.at_peak], facts.walk.lives.asked[facts.at_peak], len(KINDS))
    kinds = {name: int(size) for name, size in zip(KINDS, sizes, strict=True) if size}
    return {"peak": facts.peak_bytes, "phase": facts.phases.of(facts.peak), "off": facts.walk.off_by, **kinds}


@pytest.mark.parametrize(
    "content", [pickle.dumps({}, 2), pickle.dumps({}, 5), gzip.compress(pickle.dumps({}), mtime=0)]
)
def test_a_snapshot_is_known_by_its_first_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    reader = reader_of(path)
    assert reader is not None and reader.kind == SNAPSHOT


VERSIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "2.0": torch_2_0,
    "2.15": torch_2_15,
    "no free_requested": without_free_requested,
    "stacks of allocations": stacks_of_allocations_alone,
    "expandable": expandable,
    "past 2^63": lambda one: moved(one, (1 << 63) + (1 << 62)),
    "past 2^63, signed": lambda one: as_signed(moved(one, (1 << 63) + (1 << 62))),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_says_the_same(version: str) -> None:
    snapshot = trained(steps=3).snapshot()
    plain = figures(decoded(snapshot))
    assert plain["off"] == 0 and plain["phase"] == "backward"
    assert figures(decoded(VERSIONS[version](snapshot))) == plain
    assert figures(decoded(cpp_pickle(snapshot))) == plain


def test_a_compressed_file_says_the_same(tmp_path: Path) -> None:
    snapshot, path = trained(steps=3).snapshot(), tmp_path / "x"
    path.write_bytes(gzip.compress(pickle.dumps(snapshot, 4)))
    run = open_run([path])
    assert isinstance(run, SnapshotRun) and figures(run.memory) == figures(decoded(snapshot))


def test_several_devices_the_fullest_first() -> None:
    small, large = Recorder(0), Recorder(1, base=1 << 44)
    build(large)
    with small.recording(), large.recording():
        small.alloc("x", 3 * MIB)
        train_step(large)
    snapshot = large.snapshot()
    snapshot["segments"] += small.segments()
    snapshot["device_traces"][0] = small.events
    found = device_memory(decoded(snapshot))
    assert [one.history.device for one in found] == [1, 0]
    assert [one.peak_bytes for one in found] == [large.peak, small.peak]
    assert all(one.walk.off_by == 0 for one in found)


def test_segments_without_events_say_what_they_hold() -> None:
    job = Recorder()
    build(job)
    for snapshot in (job.snapshot(), job.segments(), {"segments": job.segments()}):
        facts = device_memory(decoded(snapshot))[0]
        assert facts.peak_bytes == job.asked and not facts.phases.is_known


def test_a_ring_that_lost_its_beginning_ends_where_the_segments_do() -> None:
    job = Recorder(max_entries=70)
    build(job)
    with job.recording():
        for _ in range(5):
            train_step(job)
    facts = device_memory(decoded(job.snapshot()))[0]
    assert len(facts.history.events) == 70
    assert facts.walk.off_by == 0 and facts.walk.unpaired == 0
    assert int(facts.walk.asked[-1]) == job.asked


def test_private_pools_are_noted() -> None:
    job = trained()
    snapshot = job.snapshot()
    free = [one for one in snapshot["segments"] if one["active_size"] == 0]
    for one in free:
        one["segment_pool_id"] = (0, 1)
    history = decoded(snapshot)
    assert history.devices[0].segments.is_private.sum() == len(free) > 0


def segment(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """One of 4 MiB at 1 GiB, with one block in it that holds something, unless others are given."""
    whole = {"size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated", "frames": []}
    found = {"device": 0, "address": 1 << 30, "total_size": 4 * MIB, "blocks": list(blocks) or [whole]}
    return found | {"active_size": 4 * MIB, "requested_size": 4 * MIB} | fields


def block(**fields: Any) -> dict[str, Any]:
    return {"size": 4 * MIB, "state": "active_allocated", "frames": []} | fields


def event(**fields: Any) -> dict[str, Any]:
    return {"action": "alloc", "addr": 4096, "size": 512, "time_us": 1, "frames": []} | fields


def pickled(*segments: Any, events: Any = (), **fields: Any) -> bytes:
    return pickle.dumps({"segments": list(segments), "device_traces": [list(events)]} | fields, 4)


def frame(**fields: Any) -> list[Any]:
    return [{"name": "f", "filename": "a.py", "line": 1} | fields]


def without(fields: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != key}


# As deep as a tuple in tuples may be, and what hashes or prints it never ends.
LAUGHS = b")\x94" + b"".join(b"h%ch%c\x86\x94" % (at, at) for at in range(200))

REFUSED = {
    "other data": (pickle.dumps({"weights": [1, 2, 3]}, 4), "not of torch"),
    "a number": (pickle.dumps(3, 4), "not of torch"),
    "no segments": (pickled(segments=3), "not of torch"),
    "strange segments": (pickled(1), "not of torch"),
    "strange traces": (pickled(device_traces=[3]), "not of torch"),
    "strange events": (pickled(events=[3]), "not of torch"),
    "devices without end": (pickled(device_traces=[[]] * 100_000), "not of torch"),
    "a negative size": (pickled(segment(total_size=-1)), "'total_size' is not a size"),
    "no number": (pickled(segment(total_size=float("nan"))), "'total_size' is not a size"),
    "a far device": (pickled(segment(device=1 << 40)), "'device' is not a size"),
    "no address": (pickled(segment(address=1 << 70)), "'address' is not an address"),
    "the end of all addresses": (pickled(segment(address=(1 << 64) - 512)), "past all addresses"),
    "a block outside": (pickled(segment(block(size=5 * MIB))), "outside its segment"),
    "a block in a block": (pickled(segment(block(address=1 << 30), block(address=1 << 30))), "same bytes"),
    "a segment twice": (pickled(segment(), segment()), "same bytes"),
    "a segment in one": (pickled(segment(), segment(address=(1 << 30) + MIB)), "same bytes"),
    "a block too small": (pickled(segment(block(requested_size=1 << 40))), "smaller than what was asked"),
    "an unknown state": (pickled(segment(block(state="resting"))), "in a state"),
    "no state": (pickled(segment(without(block(), "state"))), "in a state"),
    "blocks that are missing": (pickled(segment(blocks=[])), "something else than its blocks"),
    "petabytes": (
        pickled(*(segment(address=at << 50, total_size=1 << 50, active_size=0, blocks=[]) for at in (1, 2))),
        "no device has",
    ),
    "more than the segments": (
        pickled(segment(), events=[event(action="segment_map", size=1 << 40)]),
        "gave",
    ),
    "never so much": (
        pickled(events=[event(action="segment_free", size=1 << 50)] * 2),
        "holds an event twice",
    ),
    "took petabytes": (
        pickled(events=[event(action="segment_free", size=1 << 50, addr=at) for at in (1, 2)]),
        "took more back",
    ),
    "a size below none": (pickled(events=[event(size=-1)]), "a size that cannot be"),
    "a huge size": (pickled(events=[event(size=1 << 62)]), "a size that cannot be"),
    "huge sizes": (
        pickled(events=[event(size=1 << 49, addr=at) for at in range(9000)]),
        "sizes that cannot be",
    ),
    "no size": (pickled(events=[without(event(), "size")]), "near byte"),
    "an event nowhere": (pickled(events=[without(event(), "addr")]), "near byte"),
    "a size of no number": (pickled(events=[event(size=float("inf"))]), "near byte"),
    "an action of no name": (pickled(events=[event(action=("alloc",))]), "near byte"),
    "a line of no number": (pickled(events=[event(frames=frame(line=float("nan")))]), "near byte"),
    "a name of no text": (pickled(events=[event(frames=frame(name=["f"]))]), "near byte"),
    "frames and others": (pickled(events=[event(frames=[*frame(), 3])]), "near byte"),
    "events and others": (pickled(events=[event(), 3]), "mixes events"),
    "a key in keys": (b"\x80\x04" + LAUGHS + b"0}h\xc8Ns.", "near byte"),
    "a list in itself": (b"\x80\x04]\x94h\x00a.", "not of torch"),
    "a text without end": (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x3fx.", "near byte 13$"),
    "cut": (pickle.dumps(trained().snapshot(), 4)[:-100], "cut off"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    data, why = REFUSED[name]
    with pytest.raises(RefusedError, match=why):
        decoded(data)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cos\nsystem\n(S'echo'\ntR.",
        b"\x80\x04]r\xff\xff\xff\xff.",  # asks an unpickler's memo for 32 GiB
        gzip.compress(pickle.dumps(trained().snapshot(), 4))[:-100],
        gzip.compress(gzip.compress(pickled(segment()))),
    ],
    ids=["imports", "asks for 32 GiB", "cut gzip", "compressed twice"],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(content)
    assert cli._run(["read", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "x.pickle" in err
    assert len(err.splitlines()) <= 2  # the line, and its hint


@pytest.mark.parametrize("left", [{"device_free": (1 << 64) - 1}, {}])
def test_what_nobody_said_was_free_is_unknown(left: dict[str, int]) -> None:
    failed = without(event(action="oom", size=1 << 40, **left), "addr")
    oom = document_of(pickled(segment(), events=[failed])).memory.oom
    assert oom is not None and oom.asked_gib == 1024.0
    assert oom.device_free_gib is None and oom.cause == "unknown"


def test_times_out_of_order_are_none() -> None:
    events = [event(addr=at << 20, time_us=9 - at) for at in range(3)]
    memory = document_of(pickled(segment(), events=events)).memory
    assert memory.curve is not None and memory.curve.ms == [] and len(memory.curve.used_gib) == 3


def test_an_empty_snapshot_is_said_to_be_one() -> None:
    for content in (pickled(), pickled(events=[event(size=0)])):
        assert "holds no memory" in document_of(content).wall.sentence


def test_decoding_keeps_to_its_memory(tmp_path: Path) -> None:
    """A bomb of a few kB ends the child, not the machine."""
    path = tmp_path / "bomb.pickle.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"\x80\x04")
        for _ in range(64):
            file.write(b"]\x94" * (1 << 19))
    with pytest.raises(InputError, match=r"too long|memory"):
        open_run([path], max_memory=32 * MIB)


def test_a_snapshot_is_read_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pickle", trained().snapshot())
    with pytest.raises(InputError, match="memory snapshot"):
        open_run([path, path])
