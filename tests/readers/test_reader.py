"""Readers are found, and chosen by what a path holds."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from findwall.readers.reader import all_readers, reader_of


def test_every_format_has_one() -> None:
    kinds = [reader.kind for reader in all_readers()]
    assert {"run-folder", "torch-trace"} <= set(kinds) and len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    "content", [b"{}", b"  [", b"\xef\xbb\xbf {", gzip.compress(b"{}", mtime=0), b"\x28\xb5\x2f\xfd"]
)
def test_a_trace_is_known_by_its_first_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "readme.txt"
    path.write_bytes(content)
    reader = reader_of(path)
    assert reader is not None and reader.kind == "torch-trace"


def test_a_run_folder_is_known_by_a_file_of_ours(tmp_path: Path) -> None:
    assert reader_of(tmp_path) is None
    (tmp_path / "run.json").write_text("{}")
    reader = reader_of(tmp_path)
    assert reader is not None and (reader.kind, reader.alone) == ("run-folder", True)


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3"])
def test_what_is_no_format_of_ours_is_nobodys(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert reader_of(path) is None


def test_a_pipe_is_not_looked_into(tmp_path: Path) -> None:
    """What is taken from it is gone; and nobody may write for long."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = reader_of(pipe)
    assert reader is not None and reader.kind == "torch-trace"


@pytest.mark.parametrize("name", ["missing", "nul\0byte", "n" * 300])
def test_asking_never_fails(tmp_path: Path, name: str) -> None:
    reader_of(tmp_path / name)
