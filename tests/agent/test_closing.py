"""The line a measured job leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from findwall.agent.ending.closing import JUST_PRINTED_S, closing_line

STARVED = {
    "wall": "data",
    "cause": "loader-starved",
    "sentence": "For 57 ms of the 80 ms step the device waits.\n",
    "next": None,
}


def written(folder: Path, wall: dict[str, object], age_s: float = 0.0) -> Path:
    """A run folder whose document was written, and printed, so long ago."""
    folder.mkdir(exist_ok=True)
    document = folder / "diagnosis.json"
    document.write_text(json.dumps({"schema": "findwall/1", "wall": wall}))
    at = document.stat().st_mtime - age_s
    os.utime(document, (at, at))
    return folder


def test_a_box_that_scrolled_away_is_told_again(tmp_path):
    folder = written(tmp_path / "a run", STARVED, age_s=3600.0)
    assert closing_line(folder) == (
        "data / loader-starved: For 57 ms of the 80 ms step the device waits. "
        f"`findwall read '{folder}'` shows it again"
    )
    written(folder, {"wall": None, "sentence": "Trace more."}, age_s=2 * JUST_PRINTED_S)
    assert closing_line(folder).startswith("no verdict yet: Trace more. `findwall read ")


def test_under_the_box_it_is_short(tmp_path):
    folder = written(tmp_path / "run", STARVED)
    assert closing_line(folder) == f"data / loader-starved; `findwall read {folder}` shows it again"
    written(folder, {"wall": None, "sentence": "Trace more."})
    assert closing_line(folder) == f"no verdict yet; `findwall read {folder}` shows it again"


def test_the_page_is_named_where_there_is_one(tmp_path):
    folder = written(tmp_path / "run", STARVED)
    (folder / "report.html").write_text("<!DOCTYPE html>")
    assert closing_line(folder).endswith(f"shows it again, and {folder}/report.html in a browser")


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b'{"wall": 3}', b"\xff"])
def test_without_a_readable_document_it_is_the_command(tmp_path, content):
    if content is not None:
        (tmp_path / "diagnosis.json").write_bytes(content)
    assert closing_line(tmp_path) == f"`findwall read {tmp_path}` shows it again"


@pytest.mark.parametrize("age_s", [0.0, 60.0])
def test_it_is_one_line(tmp_path, age_s):
    written(tmp_path, {"wall": "x", "cause": "y\n", "sentence": "a\nb\x1b[31mc"}, age_s)
    assert closing_line(tmp_path).isprintable()
