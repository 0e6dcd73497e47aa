"""Exports that somebody put in a person's way: each is answered or refused, and none keeps the reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.readers import nsys_packed
from findwall.readers.nsys.opening import Pace
from soak import hostile
from soak.exports import HOSTILE, Many, sound

FEWER = 20_000


@pytest.mark.parametrize("name", list(HOSTILE))
def test_every_export_is_answered_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Many, "rows", FEWER)
    monkeypatch.setattr(nsys_packed, "_FREE_BYTES", 1 << 24)  # of a bomb: what is unpacked lies on the disk
    assert hostile.read_hostile(name, tmp_path) in ("read", "refused")


def test_there_are_many_kinds_of_them() -> None:
    assert len(HOSTILE) >= 37


def test_a_sound_export_is_read(tmp_path: Path) -> None:
    """What the others are made from: else they would be refused for nothing."""
    HOSTILE["nothing"] = lambda path: None
    try:
        assert hostile.read_hostile("nothing", tmp_path) == "read"
    finally:
        del HOSTILE["nothing"]


def test_the_time_of_a_file_grows_with_it(tmp_path: Path) -> None:
    path = sound(tmp_path / "a.sqlite")
    small = Pace(path).allowed_s
    with path.open("ab") as file:
        file.truncate(1 << 30)
    assert small < 10 < 100 < Pace(path).allowed_s
