"""Run folders: unique names, whole files, pruning, ranks that find each other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from findwall.agent.ending import runfolder
from findwall.agent.ending.runfolder import open_folder, prune, safe_name
from findwall.agent.membership import Membership, this_rank
from findwall.agent.options import Options
from findwall.machine.ceilings.numpy_cores import core_name
from findwall.model.measurement import RUN_FILE, RunInfo


def test_folders_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = open_folder("a/train.py", ["a/train.py"], Options(), Membership())
    second = open_folder("train.py", ["train.py"], Options(), Membership())
    assert first is not None and second is not None
    assert [f.path.name for f in (first, second)] == ["train-1", "train-2"]
    info = msgspec.json.decode((first.path / RUN_FILE).read_bytes(), type=RunInfo)
    assert info.cores == core_name()  # what a CPU job runs on is known even if it is killed at once


def test_the_folder_of_runs_ignores_itself_in_git(tmp_path):
    assert open_folder("x.py", [], Options(), Membership(), tmp_path) is not None
    ignored = tmp_path / "findwall-runs" / ".gitignore"
    assert ignored.read_text() == "*\n"
    ignored.unlink()  # a person who wants to commit runs is not overruled
    assert open_folder("x.py", [], Options(), Membership(), tmp_path) is not None
    assert not ignored.exists()
    assert open_folder("x.py", [], Options(out="mine/run"), Membership(), tmp_path) is not None
    assert not (tmp_path / "mine" / ".gitignore").exists()


def test_many_at_once_get_a_folder_each(tmp_path):
    options = Options(out=str(tmp_path / "out"))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: open_folder("x", [], options, Membership()), range(24)))
    assert len({folder.path for folder in made if folder is not None}) == 24


def test_an_unwritable_place_falls_back_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    folder = open_folder("x", [], Options(out=str(tmp_path / "file" / "run")), Membership())
    assert folder is not None and folder.path.is_dir()
    assert "cannot be written" in folder.notes[0]


def test_old_runs_are_pruned_past_the_cap_and_nothing_else(tmp_path):
    for number in range(6):
        run = tmp_path / f"train-{number}"
        run.mkdir()
        (run / RUN_FILE).write_text("{}")
        (run / "trace.json").write_bytes(b"x" * 1000)
        os.utime(run / RUN_FILE, (number, number))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").write_bytes(b"x" * 5000)
    prune(tmp_path, keep=tmp_path / "train-5", cap=2500)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "train-3", "train-4", "train-5"]


def test_ranks_of_one_launch_share_a_folder(tmp_path):
    options = Options(out=str(tmp_path / "out"))
    late = open_folder("x", [], options, Membership(1, 2, "job"))
    assert late is None
    first = open_folder("x", [], options, Membership(0, 2, "job"))
    second = open_folder("x", [], options, Membership(1, 2, "job"))
    assert first is not None and second is not None
    assert second.path == first.path and second.rank_path.name == "rank1"
    assert open_folder("x", [], options, Membership(1, 2, "other job")) is None


def test_ranks_come_from_the_launchers_variables():
    assert this_rank({}) == Membership()
    assert this_rank({"RANK": "0", "WORLD_SIZE": "1"}) == Membership()
    assert this_rank({"RANK": "x", "WORLD_SIZE": "2"}) == Membership()
    environ = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}
    other = {**environ, "RANK": "3"}
    assert this_rank(environ).rank == 1 and this_rank(environ).world_size == 4
    assert this_rank(environ).job == this_rank(other).job
    assert this_rank({**environ, "MASTER_PORT": "1"}).job != this_rank(environ).job


STEP = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("environ", "rank", "size", "local"),
    [
        ({**STEP, "SLURM_PROCID": "2", "SLURM_LOCALID": "1"}, 2, 4, 1),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 1, 2, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, 3, 4, 1),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2, None),
        # mpirun's daemon is a task of a step: its ranks have its variables too
        ({**STEP, "SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, 5, 6, None),
        # and so has torchrun, one a node
        ({**STEP, "SLURM_PROCID": "1", "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}, 9, 16, 1),
        # each task runs a torchrun of its own
        ({**STEP, "SLURM_PROCID": "1", "RANK": "0", "WORLD_SIZE": "1"}, 0, 1, None),
        # a batch script has the job's tasks and is none of them; so is the shell of salloc
        ({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, 0, 1, None),
        ({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967291"}, 0, 1, None),
        ({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967290"}, 0, 1, None),
        # srun --ntasks 1 inside a larger allocation
        ({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, 0, 1, None),
    ],
)
def test_every_launcher_says_which_rank_this_is(environ, rank, size, local):
    found = this_rank(environ)
    assert (found.rank, found.world_size, found.local_rank) == (rank, size, local)


def test_machines_of_one_launch_share_a_key(monkeypatch):
    """Each has another launcher's process above its ranks."""
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1"}
    slurm = {**STEP, "SLURM_PROCID": "0"}
    alone = {**torchrun, "LOCAL_WORLD_SIZE": "4"}
    here = [this_rank({**one, "RANK": "0"}) for one in (torchrun, alone)] + [this_rank(slurm)]
    monkeypatch.setattr(os, "getppid", lambda: 1)
    there = [this_rank({**one, "RANK": "3"}) for one in (torchrun, alone)]
    there.append(this_rank({**slurm, "SLURM_PROCID": "3"}))
    assert [one.job == other.job for one, other in zip(here, there, strict=True)] == [True, False, True]
    assert here[0].since > 0 and here[2].since == 0.0  # a step's number is used once, a port again


def test_a_former_launch_of_the_same_name_is_not_followed(tmp_path):
    options = Options(out=str(tmp_path / "out"))
    assert open_folder("x", [], options, Membership(0, 2, "job")) is not None
    (pointer,) = tmp_path.glob(".job-*")
    os.utime(pointer, (100.0, 100.0))
    assert open_folder("x", [], options, Membership(1, 2, "job", since=200.0)) is None
    assert open_folder("x", [], options, Membership(1, 2, "job", since=50.0)) is not None


def test_a_machine_that_shares_no_disk_keeps_its_ranks_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(runfolder.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    here, there = Options(out=str(tmp_path / "a" / "run")), Options(out=str(tmp_path / "b" / "run"))
    first = open_folder("x", [], here, Membership(0, 4, "job", 0, spans=True))
    third, fourth = (Membership(2 + local, 4, "job", local, spans=True) for local in (0, 1))
    assert first is not None and open_folder("x", [], there, third) is None
    assert open_folder("x", [], there, fourth, at_last=True) is None
    apart = open_folder("x", [], there, third, at_last=True)
    assert apart is not None and apart.is_apart and not first.is_apart
    followed = open_folder("x", [], there, fourth)
    assert followed is not None and followed.path == apart.path
    infos = [msgspec.json.decode((one.path / RUN_FILE).read_bytes(), type=RunInfo) for one in (first, apart)]
    assert infos[0].job == infos[1].job == "job" and infos[0].spans


def test_a_shared_disk_that_shows_late_what_others_made_is_shared(tmp_path, monkeypatch):
    options = Options(out=str(tmp_path / "run"))
    first = open_folder("x", [], options, Membership(0, 4, "job", 0, spans=True))
    seen = iter([None])
    follow = runfolder._follow
    monkeypatch.setattr(runfolder, "_follow", lambda *given: next(seen, follow(*given)))
    found = open_folder("x", [], options, Membership(2, 4, "job", 0, spans=True), at_last=True)
    assert first is not None and found is not None and found.path == first.path and not found.is_apart
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]


def test_names_are_safe():
    assert safe_name("/a b/my train.py") == "my-train"
    assert safe_name("pkg.mod") == "pkg.mod"
    assert safe_name("..") == "job"
    assert runfolder.RUNS == "findwall-runs"


def test_a_folder_that_another_has_just_made_is_not_shared(tmp_path):
    """It is empty still, as one that a person made would be."""
    made = [runfolder._make_unique(tmp_path, "run", exact=True) for _ in range(2)]
    assert [path.name for path in made] == ["run", "run-1"]
    (tmp_path / "mine").mkdir()
    assert runfolder._make_unique(tmp_path, "mine", exact=True).name == "mine"
