"""Files, folders and several paths to one run."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_samples import HEADER, modern, save, torch_1_8

from findwall.errors import InputError
from findwall.readers import open_run


def ranked(path: Path, rank: int, world_size: int = 2) -> Path:
    return save(path, modern(1), {**HEADER, "distributedInfo": {"rank": rank, "world_size": world_size}})


def test_a_folder_is_one_rank_a_file_in_the_order_of_ranks(tmp_path: Path) -> None:
    ranked(tmp_path / "a.json", 1)
    ranked(tmp_path / "b.pt.trace.json.gz", 0)
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "weights.bin").write_bytes(b"\x80\x02}")
    run = open_run([tmp_path])
    assert run.kind == "torch-trace"
    assert [timeline.header.rank for timeline in run.timelines] == [0, 1]
    assert run.paths == (str(tmp_path),)
    assert run.notes == ("2 other files in the folder were ignored.",)


def test_several_paths(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    ranked(tmp_path / "folder" / "one.json", 1)
    run = open_run([tmp_path / "folder", ranked(tmp_path / "zero.json", 0)])
    assert [timeline.header.rank for timeline in run.timelines] == [0, 1]
    assert not run.notes


def test_a_file_given_twice_is_one_rank(tmp_path: Path) -> None:
    path = ranked(tmp_path / "one.json", 0, 1)
    (tmp_path / "link.json").symlink_to(path)
    run = open_run([path, tmp_path / "." / "one.json", tmp_path])
    assert len(run.ranks) == 1
    assert run.notes == ("3 files were given more than once and read once.",)


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    path = save(tmp_path / "a", torch_1_8(), {})
    run = open_run([path])
    assert len(run.ranks) == 1
    assert run.timelines[0].path == str(path)


def test_a_partial_set_of_ranks_is_said(tmp_path: Path) -> None:
    ranked(tmp_path / "a.json", 0, 8)
    ranked(tmp_path / "b.json", 5, 8)
    assert open_run([tmp_path]).notes == ("2 of 8 ranks are here.",)


def test_a_broken_file_in_a_folder_is_named(tmp_path: Path) -> None:
    ranked(tmp_path / "good.json", 0, 1)
    (tmp_path / "broken.json").write_text('{"other": 1}')
    run = open_run([tmp_path])
    assert len(run.ranks) == 1
    assert any("broken.json holds no traceEvents" in note for note in run.notes)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no readable trace"):
        open_run([tmp_path])
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(InputError, match=r"2 files seen.*no traceEvents"):
        open_run([tmp_path])


def test_a_file_given_by_name_must_be_readable(tmp_path: Path) -> None:
    good = ranked(tmp_path / "good.json", 0)
    with pytest.raises(InputError, match="does not exist"):
        open_run([good, tmp_path / "missing.json"])
    with pytest.raises(InputError, match="No path"):
        open_run([])


def test_a_run_folder_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be combined with others"):
        open_run([tmp_path / "run", ranked(tmp_path / "a.json", 0)])


def test_folders_of_ranks_in_a_folder(tmp_path: Path) -> None:
    """Numbered as their folders are where the traces bear no number."""
    for rank in (10, 2, 0):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        save(folder / "trace.json", modern(1), {**HEADER, "distributedInfo": {}})
        (folder / "log.txt").write_text("not a trace")
    run = open_run([tmp_path])
    assert [rank.number for rank in run.ranks] == [0, 2, 10]
    assert run.notes == ("3 other files in the folder were ignored.",)


def test_folders_beside_traces_are_not_looked_into(tmp_path: Path) -> None:
    ranked(tmp_path / "one.json", 0, 1)
    (tmp_path / "older").mkdir()
    ranked(tmp_path / "older" / "two.json", 1)
    assert len(open_run([tmp_path]).ranks) == 1
