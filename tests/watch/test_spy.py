"""py-spy: what it dumps, and why it does not."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from findwall.watch import spy
from recorded_looks import recorded


def script(folder: Path, text: str) -> str:
    """A stand-in for py-spy."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_dump_becomes_stacks(tmp_path: Path) -> None:
    dump = recorded("chatty_logger")["dumps"][0]
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    threads = spy.look(script(tmp_path, f"cat {tmp_path}/dump.json"), 1)
    assert threads is not None and len(threads) == len(dump)
    main = threads[0]
    assert main.thread == dump[0]["os_thread_id"] and main.stack.holds_lock is dump[0]["owns_gil"]
    assert [frame.function for frame in main.stack.frames] == [one["name"] for one in dump[0]["frames"]]


@pytest.mark.parametrize(
    "raw", [b"", b"[", b"{}", b'[{"frames": 3}]', b'[{"frames": [{"name": 1}]}]', b"\xff"]
)
def test_a_damaged_dump_is_no_look(raw: bytes) -> None:
    assert spy.parse(raw) is None


def test_a_look_that_fails_once_may_succeed_again(tmp_path: Path) -> None:
    assert spy.look(script(tmp_path, "echo 'Error: Failed to copy PyThreadState' >&2; exit 1"), 1) is None


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("Permission Denied: Try running again with elevated permissions", "The Python line is unknown"),
        ("Error: Operation not permitted (os error 1)", "The Python line is unknown"),
        ("Error: Failed to find python version from target process", "does not know this Python"),
    ],
)
def test_what_will_never_succeed_is_said_once(tmp_path: Path, said: str, answer: str) -> None:
    with pytest.raises(spy.Refused, match=answer):
        spy.look(script(tmp_path, f'echo "{said}" >&2; exit 1'), os.getpid())


def test_a_py_spy_that_cannot_be_started_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(spy.Refused, match="pip install py-spy"):
        spy.look(str(tmp_path / "nothing"), 1)


def machine(folder: Path, scope: str, capabilities: str) -> Path:
    yama = folder / "sys/kernel/yama"
    yama.mkdir(parents=True)
    if scope:
        (yama / "ptrace_scope").write_text(f"{scope}\n")
    (folder / "self").mkdir()
    (folder / "self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    (folder / "7").mkdir()
    return folder


@pytest.mark.parametrize(
    ("scope", "capabilities", "said"),
    [
        ("1", "0000000000000000", "ptrace_scope is 1"),
        ("2", "0000000000000000", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("", "0000000000000000", "--cap-add=SYS_PTRACE"),
        ("1", "0000000000080000", "--cap-add=SYS_PTRACE"),  # it has the capability: something else bars it
    ],
)
def test_who_may_not_look_learns_why_and_what_to_do(
    tmp_path: Path, scope: str, capabilities: str, said: str
) -> None:
    answer = spy.no_permission(7, machine(tmp_path, scope, capabilities))
    assert said in answer and "\n" not in answer


def test_another_users_process_needs_that_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (tmp_path / "7").mkdir() or (tmp_path / "7").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert "another user's" in spy.no_permission(7, tmp_path)
