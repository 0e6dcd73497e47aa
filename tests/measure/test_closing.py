"""The line a measured job leaves behind."""

from __future__ import annotations

import json

import pytest

from findwall.measure.closing import closing_line


def test_it_has_the_sentence_the_folder_and_the_command(tmp_path):
    folder = tmp_path / "a run"
    folder.mkdir()
    wall = {
        "wall": "data",
        "cause": "loader-starved",
        "sentence": "57 ms of the 80 ms step wait.\n",
        "next": None,
    }
    (folder / "diagnosis.json").write_text(json.dumps({"schema": "findwall/1", "wall": wall}))
    assert closing_line(folder) == (
        f"data / loader-starved: 57 ms of the 80 ms step wait. `findwall read '{folder}'` shows it again"
    )
    (folder / "diagnosis.json").write_text(json.dumps({"wall": {"wall": None, "sentence": "Trace more."}}))
    assert closing_line(folder).startswith("no verdict yet: Trace more. `findwall read ")


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b'{"wall": 3}', b"\xff"])
def test_without_a_readable_document_it_is_the_command(tmp_path, content):
    if content is not None:
        (tmp_path / "diagnosis.json").write_bytes(content)
    assert closing_line(tmp_path) == f"`findwall read {tmp_path}` shows it again"


def test_it_is_one_line(tmp_path):
    wall = {"wall": "x", "cause": "y", "sentence": "a\nb\x1b[31mc"}
    (tmp_path / "diagnosis.json").write_text(json.dumps({"wall": wall}))
    assert closing_line(tmp_path).isprintable()
