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
from findwall.model.memory_history import KINDS, SNAPSHOT, MemoryHistory, SnapshotRun
from findwall.readers import open_run
from findwall.readers.reader import reader_of
from memory_samples import (
    MIB,
    Recorder,
    as_signed,
    build,
    cpp_pickle,
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


def read(path: Path) -> MemoryHistory:
    run = open_run([path])
    assert isinstance(run, SnapshotRun)
    return run.memory


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
def test_every_version_says_the_same(tmp_path: Path, version: str) -> None:
    snapshot = trained(steps=3).snapshot()
    plain = figures(read(write(tmp_path / "plain.pickle", snapshot)))
    assert plain["off"] == 0 and plain["phase"] == "backward"
    assert figures(read(write(tmp_path / "other.pickle", VERSIONS[version](snapshot)))) == plain


def test_python_and_cpp_and_gzip_say_the_same(tmp_path: Path) -> None:
    snapshot = trained(steps=3).snapshot()
    plain = figures(read(write(tmp_path / "a", snapshot)))
    (tmp_path / "b").write_bytes(cpp_pickle(snapshot))
    (tmp_path / "c").write_bytes(gzip.compress(pickle.dumps(snapshot, 4)))
    assert figures(read(tmp_path / "b")) == figures(read(tmp_path / "c")) == plain


def test_several_devices_the_fullest_first(tmp_path: Path) -> None:
    small, large = Recorder(0), Recorder(1, base=1 << 44)
    build(large)
    with small.recording(), large.recording():
        small.alloc("x", 3 * MIB)
        train_step(large)
    snapshot = large.snapshot()
    snapshot["segments"] += small.segments()
    snapshot["device_traces"][0] = small.events
    found = device_memory(read(write(tmp_path / "two.pickle", snapshot)))
    assert [one.history.device for one in found] == [1, 0]
    assert [one.peak_bytes for one in found] == [large.peak, small.peak]
    assert all(one.walk.off_by == 0 for one in found)


def test_segments_without_events_say_what_they_hold(tmp_path: Path) -> None:
    job = Recorder()
    build(job)
    for snapshot in (job.snapshot(), job.segments(), {"segments": job.segments()}):
        facts = device_memory(read(write(tmp_path / "segments.pickle", snapshot)))[0]
        assert facts.peak_bytes == job.asked and not facts.phases.is_known


def test_a_ring_that_lost_its_beginning_ends_where_the_segments_do(tmp_path: Path) -> None:
    job = Recorder(max_entries=70)
    build(job)
    with job.recording():
        for _ in range(5):
            train_step(job)
    facts = device_memory(read(write(tmp_path / "ring.pickle", job.snapshot())))[0]
    assert len(facts.history.events) == 70
    assert facts.walk.off_by == 0 and facts.walk.unpaired == 0
    assert int(facts.walk.asked[-1]) == job.asked


def test_private_pools_are_noted(tmp_path: Path) -> None:
    job = trained()
    snapshot = job.snapshot()
    free = [one for one in snapshot["segments"] if one["active_size"] == 0]
    for one in free:
        one["segment_pool_id"] = (0, 1)
    history = read(write(tmp_path / "a", snapshot))
    assert history.devices[0].segments.is_private.sum() == len(free) > 0


HOSTILE = {
    "imports": b"\x80\x02cos\nsystem\n(S'echo'\ntR.",
    "asks for 32 GiB": b"\x80\x04]r\xff\xff\xff\xff.",
    "other data": pickle.dumps({"weights": [1, 2, 3]}, 4),
    "a number": pickle.dumps(3, 4),
    "no segments": pickle.dumps({"segments": 3, "device_traces": []}, 4),
    "strange segments": pickle.dumps({"segments": [1], "device_traces": []}, 4),
    "negative": pickle.dumps({"segments": [{"device": 0, "address": 1, "total_size": -1}]}, 4),
    "far device": pickle.dumps({"segments": [{"device": 1 << 40, "address": 1, "total_size": 1}]}, 4),
    "strange trace": pickle.dumps({"segments": [], "device_traces": [3]}, 4),
    "strange events": pickle.dumps({"segments": [], "device_traces": [[3]]}, 4),
    "one device many times": pickle.dumps({"segments": [], "device_traces": [[]] * 100_000}, 4),
    "cut": pickle.dumps(trained().snapshot(), 4)[:-100],
    "cut gzip": gzip.compress(pickle.dumps(trained().snapshot(), 4))[:-100],
    "a block outside": pickle.dumps(
        {"segments": [{"device": 0, "address": 0, "total_size": 1, "blocks": [{"size": 2}]}]}, 4
    ),
    "huge sizes": pickle.dumps(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1 << 62, "frames": []}]]},
        4,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(HOSTILE[name])
    assert cli._run(["read", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "x.pickle" in err
    assert len(err.splitlines()) <= 2  # the line, and its hint


def test_an_empty_snapshot_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.pickle", {"segments": [], "device_traces": [[]]})
    assert cli._run(["read", str(path)]) == 0
    assert "holds no memory" in " ".join(capsys.readouterr().out.split())


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
