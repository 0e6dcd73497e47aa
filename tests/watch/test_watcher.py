"""Which thread of a process trains, and what the watch makes of its looks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from findwall.model.watched import SeenStack, StackFrame
from findwall.watch import watcher as watching
from findwall.watch.seen_lines import Sources
from findwall.watch.spy import ThreadStack
from findwall.watch.watcher import Watcher, training_stacks

OWN, LOADER = (
    "/home/user/job/train.py",
    "/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
)


def thread(number: int, name: str, running: bool, file: str = OWN) -> ThreadStack:
    return ThreadStack(number, name, SeenStack((StackFrame("run", file, 3),), False, running))


def test_the_main_thread_trains_unless_it_only_waits_for_another() -> None:
    main, other = thread(1, "MainThread", False), thread(2, "trainer", True)
    assert training_stacks(1, [[main, other]] * 10) == ([other.stack] * 10, "trainer")
    works = thread(1, "MainThread", True)
    assert training_stacks(1, [[works, other]] * 10) == ([works.stack] * 10, "")
    loads = thread(1, "MainThread", False, LOADER)  # it waits for its batch: that is what it does
    assert training_stacks(1, [[loads, other]] * 10) == ([loads.stack] * 10, "")


def test_in_a_container_the_main_thread_is_told_by_its_name() -> None:
    inside = thread(7, "MainThread", True)
    assert training_stacks(4000, [[inside]]) == ([inside.stack], "")


def test_a_watch_without_py_spy_still_counts_what_the_process_takes() -> None:
    watcher = Watcher(os.getpid(), spy_path=None)
    watcher.tick()
    watcher.stop()
    run = watcher.run()
    assert run.kind == "watch" and run.watched is not None
    assert run.watched.looks == 0 and "py-spy is not installed" in run.watched.why_no_lines
    assert run.first.watched is not None and run.first.watched.stacks == ()


def process(proc: Path, pid: int, parent: int, program: str, state: str = "S") -> None:
    own = proc / str(pid)
    (own / "fd").mkdir(parents=True, exist_ok=True)
    (own / "stat").write_text(f"{pid} (job) {state} {parent} {'0 ' * 17}{1000 + pid} {'0 ' * 10}")
    (own / "cmdline").write_bytes(b"job\0")
    for name in ("maps", "environ"):
        (own / name).write_text("")
    if not (own / "exe").is_symlink():
        (own / "exe").symlink_to(program)


def test_a_job_whose_launcher_goes_on_alone_has_ended(tmp_path: Path) -> None:
    """`sh -c "python train.py; sleep 60"`: what was seen of the job is not lost."""
    process(tmp_path, 1, 0, "/bin/sh")
    process(tmp_path, 2, 1, "/usr/bin/python3")
    watcher = Watcher(1, spy_path=None, proc=tmp_path)
    (tmp_path / "2" / "stat").unlink()
    watcher._next_tree = 0.0
    watcher.tick()
    assert watcher.has_ended and [one.watched and one.watched.pid for one in watcher.run().ranks] == [2]


def test_a_job_that_is_stopped_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "USE_PERIOD_S", 0.001)
    process(tmp_path, 1, 0, "/usr/bin/python3", state="T")
    watcher = Watcher(1, spy_path=None, proc=tmp_path)
    watcher.tick()
    told = watcher.run().watched
    assert told is not None and told.is_stopped
    process(tmp_path, 1, 0, "/usr/bin/python3", state="R")
    for _ in range(20):
        watcher.tick()
    told = watcher.run().watched
    assert told is not None and not told.is_stopped


def test_a_source_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "7" / "root").mkdir(parents=True)
    os.mkfifo(tmp_path / "7" / "root" / "script")
    stack = SeenStack((StackFrame("<module>", "/script", 3),), True, True)
    assert Sources(7, 10**12, tmp_path).texts([stack]) == {}
