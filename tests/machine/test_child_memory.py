"""What workers hold, told by a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from findwall.machine.child_memory import ChildMemory, child_memory

SHARED = Path("/dev/shm")


def process(proc: Path, name: str, children: str = "", own: int | None = None, shared: int = 0) -> Path:
    folder = proc / name
    (folder / "task" / "1").mkdir(parents=True)
    (folder / "task" / "1" / "children").write_text(children)
    (folder / "fd").mkdir()
    if own is not None:
        told = ["00-ff ---p [rollup]", "Rss: 9 kB", f"Pss_Shmem: {shared} kB", f"Private_Dirty: {own} kB"]
        (folder / "smaps_rollup").write_text("\n".join(told))
    return folder


def test_all_below_are_counted_without_what_they_only_map(tmp_path: Path) -> None:
    process(tmp_path, "self", "7 8 ")
    process(tmp_path, "7", "9", own=100, shared=30)
    process(tmp_path, "8")  # it has ended since
    process(tmp_path, "9", own=5)
    assert child_memory(tmp_path) == ChildMemory(75 * 1024, 0)


def test_without_workers_there_is_nothing_to_say(tmp_path: Path) -> None:
    process(tmp_path, "self")
    assert child_memory(tmp_path) is None and child_memory(tmp_path / "nowhere") is None


@pytest.mark.skipif(not os.access(SHARED, os.W_OK), reason="no shared memory")
def test_what_waits_is_counted_once_and_not_where_the_job_has_it_too(tmp_path: Path) -> None:
    files = [SHARED / f"findwall-test-{os.getpid()}-{number}" for number in range(2)]
    try:
        for file in files:
            file.write_bytes(b"x" * 40_960)
        mine = process(tmp_path, "self", "7 8")
        for name in ("7", "8"):
            folder = process(tmp_path, name, own=1)
            for number, file in enumerate(files):
                (folder / "fd" / str(number)).symlink_to(file)
        (mine / "fd" / "3").symlink_to(files[1])
        (mine / "fd" / "4").symlink_to(tmp_path / "gone")
        assert child_memory(tmp_path) == ChildMemory(2048, 40_960)
    finally:
        for file in files:
            file.unlink(missing_ok=True)
