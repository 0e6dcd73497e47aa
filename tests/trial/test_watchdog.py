"""Nothing of a trial outlives it, however its processes hide and however it ends; and nobody else's ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jobs
from findwall.trial import process_groups as processes
from findwall.trial import watchdog
from findwall.trial.arms_in_turn import Arm, Plan, run_trial

needs_proc = pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the system does not tell"
)

# Leaves its parents, its session, its environment and its folder, as daemons do, and tells its number.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/')
        code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, '-S', '-c', code, sys.argv[1] + '.tmp'], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1] + '.tmp') or not open(sys.argv[1] + '.tmp').read():
    time.sleep(0.01)
os.rename(sys.argv[1] + '.tmp', sys.argv[1])
"""
RUNNER = """
import sys
from findwall.trial.arms_in_turn import Arm, Plan, run_trial
run_trial([Arm('a', (sys.executable, '-S', '-c', sys.argv[1], sys.argv[2]), {}, sys.argv[3])], Plan(rounds=1))
"""


def awaited(path: Path) -> int:
    until = time.monotonic() + jobs.HANG_S
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(path.read_text())


def gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while watchdog.started(pid) >= 0 and time.monotonic() < until:
        time.sleep(0.02)
    return watchdog.started(pid) < 0


@needs_proc
def test_a_daemon_of_the_job_ends_with_it(tmp_path: Path) -> None:
    code = f"{DAEMON}\nprint('mean step ms', 3.0)"
    arm = Arm("a", (sys.executable, "-S", "-c", code, str(tmp_path / "daemon")), {})
    trial = run_trial([arm], Plan(rounds=1))
    assert trial.arms["a"].runs_ms == [3.0]
    assert gone(int((tmp_path / "daemon").read_text()))


@needs_proc
def test_a_trial_that_is_killed_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    temporary, sandbox = tmp_path / "temporary", tmp_path / "sandbox"
    temporary.mkdir()
    sandbox.mkdir()
    told = tmp_path / "daemon"
    told_later = f"open({str(tmp_path / 'job')!r}, 'w').write(str(os.getpid()))"
    code = f"{DAEMON}\ntime.sleep(3)\n{told_later}\ntime.sleep(600)"  # several looks of the watchdog later
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, code, str(told), str(sandbox)],
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    daemon, job = awaited(told), awaited(tmp_path / "job")
    assert [path.name[:9] for path in (*temporary.iterdir(), *sandbox.iterdir())] == ["findwall-"] * 2
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert gone(job)
    assert gone(daemon)
    until = time.monotonic() + 30
    while [*temporary.iterdir(), *sandbox.iterdir()] and time.monotonic() < until:
        time.sleep(0.02)
    assert [*temporary.iterdir(), *sandbox.iterdir()] == []


@needs_proc
def test_nobody_else_s_process_is_ended(tmp_path: Path) -> None:
    """One that was there before, in a session of its own; one of ours beside the trial; and one elsewhere."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    before = subprocess.Popen(command, start_new_session=True)
    time.sleep(0.05)  # a tick of the system's clock, by which they are told apart
    try:
        with processes.overseen("FINDWALL_TEST", "nobody"):
            beside = subprocess.Popen(command)
        assert before.poll() is None
        assert beside.poll() is None
        watchdog.clear({before.pid: watchdog.started(before.pid) - 1}, "FINDWALL_TEST", "nobody", [])
        assert before.poll() is None  # the number of one that is gone, and was given again
    finally:
        for one in (before, beside):
            one.kill()
            one.wait()


def test_only_our_own_folders_are_taken_away(tmp_path: Path) -> None:
    mine, other, link = tmp_path / "findwall-trial-x", tmp_path / "other", tmp_path / "findwall-link"
    mine.mkdir()
    other.mkdir()
    (other / "kept").touch()
    link.symlink_to(other)
    watchdog.clear({}, "FINDWALL_TEST", "nobody", [str(mine), str(other), str(link)])
    assert not mine.exists()
    assert (other / "kept").exists()


def test_orphans_go_where_they_went_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes._adopt_orphans(False)
    with processes.overseen("FINDWALL_TEST", "nobody"):
        assert processes._adopt_orphans(True) in (True, None)
    assert processes._adopt_orphans(bool(before)) in (False, None)


def test_a_system_that_cannot_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_watchdog", lambda *_: None)
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda _: object())
    trial = run_trial([Arm("a", (sys.executable, "-S", "-c", "print('mean step ms', 3.0)"))], Plan(rounds=1))
    assert trial.arms["a"].runs_ms == [3.0]
