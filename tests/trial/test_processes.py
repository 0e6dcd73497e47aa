"""Folders for single processes: each finds what is there, and nothing of what another left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from findwall.trial import process_groups as processes
from findwall.trial.process_groups import own_folder


def inside(parent: Path) -> dict[str, str]:
    return {str(one.relative_to(parent)): one.read_text() for one in parent.rglob("*") if one.is_file()}


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "box"
    (folder / "ckpt" / "deep").mkdir(parents=True)
    (folder / "ckpt" / "last.pt").write_text("mine")
    (folder / "ckpt" / "deep" / "best.txt").write_text("0.5")
    (folder / "config.yaml").write_text("lr: 1")
    return folder


def test_what_a_process_leaves_is_found_by_no_other(parent: Path) -> None:
    before = inside(parent)
    with own_folder(str(parent)) as name:
        assert name is not None and inside(Path(name)) == before
        Path(name, "ckpt", "step2.pt").write_text("new")
        Path(name, "ckpt", "last.pt").write_text("over")
        with open(Path(name, "ckpt", "deep", "best.txt"), "a") as file:
            file.write("more")
        with own_folder(str(parent)) as other:
            assert other is not None and inside(Path(other)) == before
        shutil.rmtree(Path(name, "ckpt"))
    assert inside(parent) == before


def test_large_files_and_folders_of_many_entries_are_linked(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (parent / "weights.bin").write_bytes(bytes(1000))
    (parent / "images").mkdir()
    for number in range(20):
        (parent / "images" / f"{number}.png").touch()
    (parent / "data").symlink_to("images")
    monkeypatch.setattr(processes, "MOST_COPIED", 100)
    monkeypatch.setattr(processes, "MOST_ENTRIES", 10)
    with own_folder(str(parent)) as name:
        assert name is not None
        links = {one.name for one in Path(name).rglob("*") if one.is_symlink()}
        assert links == {"weights.bin", "images", "data"}
        assert inside(Path(name)).keys() >= {"weights.bin", "config.yaml"}
        assert len(list(Path(name, "data").iterdir())) == 20
