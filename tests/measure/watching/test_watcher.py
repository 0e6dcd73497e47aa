"""Which thread of a process trains, and what the watch makes of its looks."""

from __future__ import annotations

import os

from findwall.measure.watching.spy import ThreadStack
from findwall.measure.watching.watcher import Watcher, training_stacks
from findwall.model.watched import SeenStack, StackFrame

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
