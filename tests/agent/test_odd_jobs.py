"""Odd jobs are under findwall what they are in plain python, and killed ones too. `make soak` runs more."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from soak.chance import Rolled
from soak.kills import kill_at_random
from soak.odd_jobs import JOBS, same_as_plain

HERE = (
    *(
        "exit-code",
        "exit-text",
        "hard-exit",
        "pipe-error",
        "interrupt",
        "atexit",
        "hook",
        "chained",
        "syntax",
    ),
    *("bad-source", "fork-raising", "exec", "no-child", "pool-spawn", "thread", "own-term", "close-stdout"),
    *("close-stderr", "close-both", "no-streams", "close-descriptors", "full", "no-stderr", "path-later"),
    *("odd-arguments", "unwritable", "few-files", "development", "settings", "false-torch"),
    *("trains-without-files", "trains-without-space"),
)


@pytest.mark.parametrize("name", HERE)
def test_an_odd_job_is_as_in_plain_python(tmp_path: Path, name: str) -> None:
    if name.startswith("trains"):
        pytest.importorskip("torch")
    same_as_plain(tmp_path, JOBS[name], is_warm=name == "trains-without-files")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_job_killed_at_a_random_moment(tmp_path: Path, number: signal.Signals) -> None:
    pytest.importorskip("torch")
    kill_at_random(tmp_path, Rolled("test", number), number)
