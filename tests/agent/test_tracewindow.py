"""What a trace window leaves behind in the job: nothing."""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any

import pytest

from findwall.agent.tracing import tracewindow
from findwall.agent.tracing.tracewindow import TEARDOWN, JobProfilers, TraceWindow


class Profile:
    """A stand-in for torch's session: notes what the environment said when it ended."""

    ended_with: str | None = "not ended"

    def __init__(self, activities: list[str], record_shapes: bool) -> None:
        self.profiler = None

    def prepare_trace(self) -> None: ...
    def start_trace(self) -> None: ...

    def stop_trace(self) -> None:
        Profile.ended_with = os.environ.get(TEARDOWN)


def window(cuda: str | None, seen: bool = False) -> TraceWindow:
    profiler = types.SimpleNamespace(
        ProfilerActivity=types.SimpleNamespace(CPU="cpu", CUDA="cuda"), _KinetoProfile=Profile
    )
    quiet: Any = types.SimpleNamespace(
        record_function=lambda name: types.SimpleNamespace(
            __enter__=lambda: None, __exit__=lambda *error: None
        )
    )
    torch = types.SimpleNamespace(
        profiler=profiler,
        version=types.SimpleNamespace(cuda=cuda),
        autograd=types.SimpleNamespace(profiler=quiet),
    )
    job = JobProfilers()
    job.seen = seen
    return TraceWindow(torch, job, gpu=True)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv(TEARDOWN, raising=False)


@pytest.mark.parametrize(
    ("cuda", "seen", "expected"),
    [
        ("13.0", False, "1"),
        ("12.6", False, "1"),
        ("12.4", False, None),
        (None, False, None),
        ("13.0", True, None),
    ],
)
def test_the_profiler_is_asked_to_leave_where_that_is_safe(cuda, seen, expected):
    one = window(cuda, seen)
    assert one.profiler_stays is (expected is None)
    one.prepare()
    one.start(5)
    one.stop()
    assert Profile.ended_with == expected
    one.forget()
    assert TEARDOWN not in os.environ


def test_a_job_that_chose_keeps_its_choice(monkeypatch):
    monkeypatch.setenv(TEARDOWN, "0")
    one = window("13.0")
    one.prepare()
    one.start(5)
    one.stop()
    one.forget()
    assert Profile.ended_with == os.environ[TEARDOWN] == "0"


def test_making_room_for_the_jobs_own_profiler_leaves_it_attached():
    one = window("13.0")
    one.prepare()
    one.start(5)
    one.abort()
    assert Profile.ended_with is None and TEARDOWN not in os.environ


def test_no_object_is_made_of_each_event():
    """A session that keeps its events parses them all when it ends, with the job stopped."""
    session = types.SimpleNamespace(acc_events=True)
    one = window("13.0")
    one.prepare()
    one._profile.profiler = session
    one.start(5)
    one.stop()
    assert session.acc_events is False


@pytest.mark.parametrize("part_bytes", [3, 8, 9, 10, 1000])
def test_kernels_are_counted_across_the_parts_of_a_file(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(tracewindow, "PART_BYTES", part_bytes)
    file = tmp_path / "trace.json"
    file.write_bytes(b'[{"cat": "kernel"}, {"cat": "cpu_op"}, {"cat": "kernel"},{"cat": "kernel"}]')
    assert tracewindow._count(file, tracewindow.KERNEL) == [3]


@pytest.mark.parametrize("prepared_only", [False, True])
def test_a_session_whose_end_was_interrupted_is_not_ended_again(monkeypatch, prepared_only):
    """torch takes the process down with it otherwise."""
    ends = []

    def interrupted(self: Profile) -> None:
        ends.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Profile, "stop_trace", interrupted)
    one = window("13.0")
    one.prepare()
    if not prepared_only:
        one.start(5)
    end = one.abort if prepared_only else one.stop
    with pytest.raises(KeyboardInterrupt):
        end()
    one.abort()
    assert len(ends) == 1 and one.state == "aborted"


@pytest.mark.parametrize("written", ["partial-{}.json", "partial-{}.json.tmp"])
def test_a_full_disk_leaves_nothing_of_a_trace(tmp_path: Path, written: str) -> None:
    """torch writes a file with a longer name, and then gives it the one it was told."""

    def export(name: str) -> None:
        Path(name).with_name(written.format(os.getpid())).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    found = window("13.0")
    found._profile = types.SimpleNamespace(export_chrome_trace=export)
    with pytest.raises(OSError, match="No space"):
        found.export(tmp_path / "rank0" / "trace.json")
    assert list((tmp_path / "rank0").iterdir()) == []


def test_a_trace_is_put_in_place_whole(tmp_path: Path) -> None:
    found = window("13.0")
    found._profile = types.SimpleNamespace(export_chrome_trace=lambda name: Path(name).write_text("{}"))
    found.export(tmp_path / "trace.json")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
