"""The command that would measure a running job, from its own command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from findwall.cli.jobs.settle import UNKNOWN_COMMAND, settling_command


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((sys.executable, "train.py", "--lr", "3e-4"), "findwall run train.py --lr 3e-4"),
        ((sys.executable, "-m", "pkg.train"), "findwall run -m pkg.train"),
        (
            ("/opt/env/bin/python3", "/opt/env/bin/torchrun", "--nproc-per-node", "8", "train.py"),
            "/opt/env/bin/torchrun --nproc-per-node 8 -m findwall run train.py",
        ),
        (("/opt/env/bin/python3", "-u", "train.py"), "/opt/env/bin/python3 -u -m findwall run train.py"),
        ((sys.executable, "-c", "import train"), UNKNOWN_COMMAND),
        (("my-job: epoch 3",), UNKNOWN_COMMAND),
        ((), UNKNOWN_COMMAND),
    ],
)
def test_findwall_goes_where_it_belongs(words: tuple[str, ...], command: str) -> None:
    assert settling_command(words, Path.cwd()) == command


def test_it_is_typed_where_the_job_was_started() -> None:
    told = settling_command((sys.executable, "train.py"), Path("/home/user/my job"))
    assert told == "cd '/home/user/my job' && findwall run train.py"


def test_secrets_are_masked_and_long_values_cut() -> None:
    words = (sys.executable, "train.py", "--wandb-token", "abcdef", "--key=hunter2", f"--config={'x' * 500}")
    told = settling_command(words, None)
    assert "abcdef" not in told and "hunter2" not in told
    assert "--wandb-token" in told and len(told) < 200


def test_a_folder_of_another_user_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)
    assert settling_command(("/opt/env/bin/python3", "train.py"), Path.cwd()) == UNKNOWN_COMMAND
