"""Command lines as people type them: what starts the processes, what runs, and where findwall goes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from findwall.cli.jobs import launchers
from findwall.cli.jobs.launchers import Launch, launch_of
from findwall.errors import InputError

RUN = "-m findwall run"


@pytest.fixture(autouse=True)
def every_command_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda word, **_: None if word == "train" else f"/bin/{word}")


@pytest.mark.parametrize(
    "typed",
    [
        "python | train.py --lr 1",
        "python3.11 -u -W ignore -X dev | train.py -m x",
        "python -Wignore -OO | train.py",
        "python | -m pkg.train --lr 1",
        "python -u | -m pkg.train",
        "torchrun --nproc-per-node 2 | train.py -q",
        "torchrun --standalone --nproc_per_node=2 | -m pkg.train a",
        "torchrun --no-python python -u | train.py",
        "torchrun --a-flag-of-tomorrow | train.py",
        "python -m torch.distributed.run --standalone | train.py",
        "accelerate launch | train.py --epochs 3",
        "accelerate launch --cpu --num_processes 2 | train.py",
        "accelerate launch --config_file a.yaml | -m pkg.train",
        "deepspeed --num_gpus 2 | train.py --deepspeed x.json",
        "numactl -N 0 python | train.py",
        "mpirun -np 2 python | -m pkg.train",
        "env A=1 torchrun --nnodes 1 | train.py",
    ],
)
def test_findwall_goes_between_the_launcher_and_the_script(typed: str) -> None:
    """At the bar."""
    words = typed.replace("| ", "").split()
    assert " ".join(launch_of(words).command(["run"])) == typed.replace("|", RUN)


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("python -um pkg.train", f"python -u {RUN} -m pkg.train"),
        ("python -mpkg.train", f"python {RUN} -m pkg.train"),
        ("torchrun --module --nnodes 1 pkg.train", f"torchrun --nnodes 1 {RUN} -m pkg.train"),
        ("torchrun --run-path train.py", f"torchrun {RUN} train.py"),
        ("train.py torchrun python", f"{sys.executable} {RUN} train.py torchrun python"),
        ("train python", f"{sys.executable} {RUN} train python"),
    ],
)
def test_what_is_spelled_otherwise_runs_the_same(typed: str, run: str) -> None:
    assert " ".join(launch_of(typed.split()).command(["run"])) == run


def test_a_module_that_a_person_names_is_one() -> None:
    assert launch_of(["python", "x"], is_module=True) == Launch((), "python", ("x",), is_module=True)


def test_a_person_sees_how_to_run_it_again() -> None:
    ranks = launch_of(["torchrun", "--nnodes", "1", "-m", "a", "b c"])
    assert (ranks.front, ranks.job) == ("torchrun --nnodes 1 -m findwall run", "-m a 'b c'")
    alone = launch_of(["a.py"])
    assert (alone.front, alone.job) == ("findwall run", "a.py")


def test_a_script_keeps_its_place_and_a_module_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch_of(["python", "a.py"]).elsewhere() == Launch(("python",), str(tmp_path / "a.py"))
    assert launch_of(["./python", "a.py"]).elsewhere().launcher == (str(tmp_path / "python"),)
    assert launch_of(["python", "-m", "a"]).elsewhere().target == "a"


@pytest.mark.parametrize(
    "typed",
    [
        "python",
        "python -c pass",
        "python -",
        "python -u -m",
        "torchrun --nnodes 1",
        "torchrun --no-python a.py",
    ],
)
def test_a_command_without_a_script_is_refused(typed: str) -> None:
    with pytest.raises(InputError):
        launch_of(typed.split())


def test_a_launcher_of_an_environment_that_is_not_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _, **__: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(InputError, match="no torchrun here"):
        launch_of(["torchrun", "a.py"])
    (tmp_path / "torchrun").touch()
    assert launch_of(["torchrun", "a.py"]).launcher == (str(tmp_path / "torchrun"),)


def _flags(parser: Any) -> set[str]:
    found = {
        word.replace("_", "-") for one in parser._actions if one.nargs == 0 for word in one.option_strings
    }
    return found - launchers._MODULE - {launchers._NO_PYTHON}


def test_the_flags_are_those_of_the_launchers() -> None:
    run = pytest.importorskip("torch.distributed.run")
    assert _flags(run.get_args_parser()) <= launchers._TORCHRUN


def test_the_flags_are_those_of_accelerate() -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    assert _flags(launch.launch_command_parser()) <= launchers._ACCELERATE
