"""Traces in a run folder end up gzipped, whole at every moment."""

from __future__ import annotations

import gzip

from findwall.agent.ending.storage import discard, pack, put_in_place

TEXT = b'{"traceEvents": []}' * 200_000


def folder_of(tmp_path):
    for name in ("trace.json", "observed.json", "capture-0.json", "measurement.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    return tmp_path


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_traces_and_captures_are_packed_and_nothing_else(tmp_path):
    folder = folder_of(tmp_path)
    packed = pack(folder)
    assert (folder / "trace.json").read_bytes() == TEXT  # who reads it now reads on
    put_in_place(packed)
    kept = ["capture-0.json.gz", "measurement.json", "observed.json.gz", "trace.json.gz"]
    assert names(folder) == kept
    assert gzip.decompress((folder / "capture-0.json.gz").read_bytes()) == TEXT
    assert pack(folder) == {}


def test_after_a_failed_verdict_all_stays_as_it_was(tmp_path):
    folder = folder_of(tmp_path)
    before = names(folder)
    discard(pack(folder))
    assert names(folder) == before


def test_what_cannot_be_packed_stays_plain(tmp_path):
    (tmp_path / "run").mkdir()
    folder = folder_of(tmp_path / "run")
    (tmp_path / "elsewhere.json").write_bytes(TEXT)
    (folder / "trace.json").unlink()
    (folder / "trace.json").symlink_to(tmp_path / "elsewhere.json")
    packed = pack(folder)
    (folder / "observed.json").unlink()
    put_in_place(packed)
    assert (folder / "trace.json").is_symlink()
    assert (tmp_path / "elsewhere.json").read_bytes() == TEXT
