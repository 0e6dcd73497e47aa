"""Who is who in a tree of processes, from a /proc that is made up, and from the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from findwall.errors import InputError
from findwall.watch.job_processes import (
    Process,
    helpers_of,
    is_alive,
    look_at,
    ranks_of,
    refuse_foreign,
    root_process,
    tree,
)

SECRET = "hunter2"


class Proc:
    """A folder like /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        pid: int,
        parent: int,
        program: str = "/usr/bin/python3.11",
        words: tuple[str, ...] = ("python", "train.py"),
        torch: bool = True,
        environ: str = "",
        gpu: bool = False,
        state: str = "S",
    ) -> None:
        own = self.folder / str(pid)
        (own / "fd").mkdir(parents=True)
        fields = [state, str(parent), *["0"] * 17, str(1000 + pid), *["0"] * 10]
        (own / "stat").write_text(f"{pid} (a (strange) name) {' '.join(fields)}")
        (own / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
        library = "/opt/env/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
        (own / "maps").write_text(f"7f00 r-xp 0 0 0 {library}\n" if torch else "")
        (own / "environ").write_text("\0".join(f"API_KEY={SECRET};{environ}".split(";")) + "\0")
        (own / "exe").symlink_to(program)
        (own / "fd" / "5").symlink_to("/dev/nvidia0" if gpu else "/dev/null")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def found(proc: Proc, pid: int = 1) -> list[Process]:
    return tree(root_process(pid, proc.folder), proc=proc.folder)


def test_torchrun_has_ranks_and_they_have_workers(proc: Proc) -> None:
    """Workers inherit their rank's variables; the launcher has none, and the shell above it no Python."""
    proc.add(1, 0, "/usr/bin/bash", ("bash", "launch.sh"), torch=False)
    proc.add(2, 1, words=("python", "/opt/env/bin/torchrun", "train.py"))
    for rank in (0, 1):
        proc.add(10 + rank, 2, environ=f"RANK={rank};LOCAL_RANK={rank}", gpu=True)
        proc.add(20 + rank, 10 + rank, environ=f"RANK={rank};LOCAL_RANK={rank}", gpu=True)
    every = found(proc)
    ranks = ranks_of(every)
    assert [(one.pid, one.rank) for one in ranks] == [(10, 0), (11, 1)]
    assert [one.pid for one in helpers_of(ranks[1], every, ranks)] == [21]


def test_a_launcher_with_the_machine_s_number_is_no_rank(proc: Proc) -> None:
    """Clusters number their machines by RANK too; only ranks have a LOCAL_RANK."""
    proc.add(2, 1, words=("python", "/opt/env/bin/torchrun", "train.py"), environ="RANK=0")
    for rank in (0, 1):
        proc.add(10 + rank, 2, environ=f"RANK={rank};LOCAL_RANK={rank}")
        proc.add(20 + rank, 10 + rank, environ=f"RANK={rank};LOCAL_RANK={rank}")
    assert [(one.pid, one.rank) for one in ranks_of(found(proc, 2))] == [(10, 0), (11, 1)]


def test_what_the_named_process_loads_later_is_seen(proc: Proc) -> None:
    proc.add(1, 0, torch=False)
    root = root_process(1, proc.folder)
    (proc.folder / "1" / "maps").write_text("7f00 r-xp 0 0 0 /opt/torch/lib/libtorch_cpu.so\n")
    assert [one.has_torch for one in tree(root, proc=proc.folder)] == [True]


def test_who_watches_its_own_shell_does_not_watch_itself(proc: Proc) -> None:
    proc.add(1, 0, "/usr/bin/bash", ("bash",), torch=False)
    proc.add(os.getpid(), 1)
    assert [one.pid for one in found(proc)] == [1]


def test_processes_that_a_script_spawned_on_gpus_are_ranks(proc: Proc) -> None:
    proc.add(1, 0)
    proc.add(2, 1, gpu=True)
    proc.add(3, 1, gpu=True)
    assert [one.pid for one in ranks_of(found(proc))] == [2, 3]


def test_a_plain_job_is_its_own_rank_and_holders_are_nobody(proc: Proc) -> None:
    proc.add(1, 0, gpu=True)
    proc.add(2, 1, gpu=True)
    proc.add(3, 1, words=("python", "-c", "from multiprocessing.resource_tracker import main"), torch=False)
    every = found(proc)
    assert [one.pid for one in ranks_of(every)] == [1]
    assert [one.pid for one in helpers_of(every[0], every, ranks_of(every))] == [2]


def test_python_without_torch_is_watched_all_the_same(proc: Proc) -> None:
    proc.add(1, 0, torch=False)
    assert [one.pid for one in ranks_of(found(proc))] == [1]


def test_of_the_environment_only_the_rank_is_kept(proc: Proc) -> None:
    proc.add(1, 0, environ="LOCAL_RANK=3")
    one = found(proc)[0]
    assert one.rank == 3
    assert SECRET not in repr(one)


def test_a_program_that_is_not_python_is_refused_in_one_line(proc: Proc) -> None:
    proc.add(1, 0, "/usr/bin/nginx", ("nginx",), torch=False)
    with pytest.raises(InputError, match=r"process 1 \(a \(strange\) name\) is not Python") as error:
        refuse_foreign(root_process(1, proc.folder), found(proc))
    assert error.value.hint


@pytest.mark.parametrize(("state", "said"), [("Z", "process 1 has ended"), ("", "there is no process 1")])
def test_a_process_that_is_gone_is_refused_in_one_line(proc: Proc, state: str, said: str) -> None:
    if state:
        proc.add(1, 0, state=state)
    with pytest.raises(InputError, match=said):
        root_process(1, proc.folder)


def test_a_number_that_another_process_got_is_not_the_job(proc: Proc) -> None:
    proc.add(1, 0)
    one = root_process(1, proc.folder)
    assert is_alive(one, proc.folder)
    stat = proc.folder / "1" / "stat"
    stat.write_text(stat.read_text().replace("1001", "5555"))
    assert not is_alive(one, proc.folder)


def test_what_cannot_be_read_is_unknown(proc: Proc) -> None:
    proc.add(1, 0)
    for name in ("maps", "environ"):
        (proc.folder / "1" / name).unlink()
    (proc.folder / "1" / "fd" / "5").unlink()
    (proc.folder / "1" / "fd").rmdir()
    one = look_at(1, proc.folder)
    assert one is not None and one.is_python
    assert (one.has_torch, one.has_gpu, one.rank) == (None, None, None)


def test_the_real_proc_tells_of_a_child() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        every = tree(root_process(os.getpid()))
        mine = next(one for one in every if one.pid == child.pid)
        assert mine.is_python and mine.has_torch is False and mine.parent == os.getpid()
    finally:
        child.kill()
        child.wait()
    assert not is_alive(mine)
