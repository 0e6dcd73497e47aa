"""Files written whole or not at all, nobody's link followed, and small files read with a bound."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from findwall import files
from findwall.errors import InputError
from findwall.files import program, read_small, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.json"
    write_atomically(path, b"old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["m.json"]


def test_what_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    """As on a disk that is full: the system refuses what is past so many bytes."""
    path = tmp_path / "m.json"
    write_atomically(path, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[0][1]))
    try:
        with pytest.raises(OSError, match="large"):
            write_atomically(path, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        signal.signal(signal.SIGXFSZ, before[1])
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["m.json"]


def test_no_draft_can_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is another every time; where somebody guessed it, nothing is written through their link."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    seen: list[str] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        seen.append(self.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    write_atomically(tmp_path / "a.json", b"1")
    write_atomically(tmp_path / "a.json", b"2")
    assert len(set(seen)) == 2
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / f".findwall-{bytes(files._UNFORESEEN_BYTES).hex()}.tmp").symlink_to(mine)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a.json", b"3")
    assert mine.read_bytes() == b"mine"
    assert (tmp_path / "a.json").read_bytes() == b"2"


def test_a_person_s_own_link_stays_a_link(tmp_path: Path) -> None:
    real, link, second = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "second.json"
    link.symlink_to("real.json")
    second.symlink_to(link)
    write_atomically(second, b"1")
    assert real.read_bytes() == b"1"
    assert link.is_symlink() and second.is_symlink()
    assert names(tmp_path) == ["link.json", "real.json", "second.json"]


def test_somebody_else_s_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"mine")
    link.symlink_to(real)
    os.lchown(link, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match="somebody else"):
        write_atomically(link, b"theirs")
    assert real.read_bytes() == b"mine"


def test_links_in_a_ring_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):
        write_atomically(tmp_path / "a", b"1")


def test_new_files_are_as_open_as_their_owner_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        tmp_path.chmod(0o755)
        write_atomically(tmp_path / "a", b"1")
        write_atomically(tmp_path / "b", b"1", private=True)
        tmp_path.chmod(0o700)
        write_atomically(tmp_path / "c", b"1")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "abc"] == [0o640, 0o600, 0o600]


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "huge"])
def test_what_is_no_small_file_is_refused_in_a_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(InputError) as refused:
        read_small(path)
    assert refused.value.hint
    assert "\n" not in refused.value.message


def test_no_program_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for place in (tmp_path, tmp_path / "bin"):
        (place / "nsys").write_text("#!/bin/sh\n")
        (place / "nsys").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", "bin", f"::{os.curdir}"):
        monkeypatch.setenv("PATH", path)
        assert program("nsys") is None
    monkeypatch.setenv("PATH", f".::{tmp_path}/bin:bin")
    assert program("nsys") == f"{tmp_path}/bin/nsys"
