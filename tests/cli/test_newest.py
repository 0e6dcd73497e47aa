"""`findwall read` without a path reads the newest run, and says which."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from findwall.cli.around.newest import resolve
from findwall.errors import InputError


def make_run(folder: Path, name: str, age_s: float) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    os.utime(path / "run.json", (1e9 - age_s, 1e9 - age_s))
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("findwall-runs")
    make_run(folder, "train-9", age_s=20)
    make_run(folder, "train-10", age_s=5)
    make_run(folder, "eval-1", age_s=50)
    (folder / "no-run").mkdir()
    (folder / ".gitignore").write_text("*")
    return folder


def test_without_a_path_it_is_the_newest_here(runs: Path) -> None:
    paths, said = resolve(())
    assert paths == [str(runs / "train-10")]
    assert "train-10, the newest of 3 in findwall-runs" in said


def test_the_folder_of_runs_stands_for_its_newest(runs: Path) -> None:
    assert resolve((str(runs),)) == resolve(())
    assert resolve((str(runs.absolute()),))[0] == [str(runs.absolute() / "train-10")]


def test_what_a_person_names_is_left_alone(runs: Path) -> None:
    for paths in ((str(runs / "train-9"),), ("missing.json",), ("a\0b",), (str(runs), str(runs))):
        assert resolve(paths) == (list(paths), "")


def test_where_there_is_none_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no findwall-runs here"):
        resolve(())
    Path("findwall-runs").mkdir()
    with pytest.raises(InputError, match="holds no run"):
        resolve(())
