"""`findwall watch` on real processes, with a stand-in for py-spy that dumps what was recorded."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from findwall.watch.job_processes import look_at
from jobs import HANG_S, with_default_signals
from recorded_looks import recorded

JOB = "import sys, time\nprint('up', flush=True)\nwhile True: time.sleep(0.01)\n"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "train.py"
    script.write_text(JOB)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, preexec_fn=with_default_signals
    )
    assert process.stdout is not None and process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def stand_in(folder: Path, text: str) -> Path:
    """A folder with a py-spy that does that."""
    folder.mkdir(exist_ok=True)
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def dumping(folder: Path, pid: int, job: str = "chatty_logger") -> Path:
    """A py-spy that finds one thread of a recorded job in the process."""
    dump = next(dump for dump in recorded(job)["dumps"] if "log" in str(dump[0]["frames"]))
    dump = [{**dump[0], "pid": pid, "os_thread_id": pid}]
    folder.mkdir(exist_ok=True)
    (folder / "dump.json").write_text(json.dumps(dump))
    return stand_in(folder, f"cat {folder}/dump.json")


def watch(*words: str, spies: Path | None = None) -> subprocess.Popen[str]:
    # Not the one beside the interpreter, where there is one: what is tried here does not depend on it.
    code = (
        "import sys; from findwall.watch import spy; import shutil;"
        f"spy.find_spy = lambda: shutil.which('py-spy', path={str(spies or '')!r});"
        "from findwall.cli import main; main(sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, "watch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=with_default_signals,
    )


def test_the_document_and_the_line_come_from_the_looks(job: subprocess.Popen[str], tmp_path: Path) -> None:
    target = tmp_path / "watch.json"
    watching = watch(
        str(job.pid), "--seconds", "1.5", "--json", str(target), spies=dumping(tmp_path / "spies", job.pid)
    )
    out, err = watching.communicate(timeout=HANG_S)
    assert watching.returncode == 0 and err == ""
    document = json.loads(target.read_text())
    (line,) = {row["line"] for row in document["watch"]["lines"]}
    assert line.startswith("chatty_logger.py:") and line in out
    assert document["source"]["kind"] == "watch" and document["step"]["ms"] is None
    assert document["watch"]["ranks"][0]["pid"] == job.pid and document["watch"]["looks"] >= 1
    assert f"findwall run {tmp_path}/train.py" in out and "\x1b" not in out
    assert job.poll() is None


def wait_for(path: Path) -> None:
    until = time.monotonic() + HANG_S
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert path.exists()


def test_without_py_spy_one_line_says_so(job: subprocess.Popen[str]) -> None:
    out, err = watch(str(job.pid), "--seconds", "1", "--brief").communicate(timeout=HANG_S)
    assert len(err.splitlines()) == 1
    assert "py-spy is not installed" in err and "pip install py-spy" in err
    assert "NO VERDICT YET" in out


def test_ctrl_c_gives_the_verdict_so_far(job: subprocess.Popen[str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    watching = watch(str(job.pid), spies=stand_in(tmp_path / "spies", f"touch {begun}; exit 1"))
    wait_for(begun)
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=HANG_S)
    assert watching.returncode == 0 and err == ""
    assert "NO VERDICT YET" in out
    assert job.poll() is None


def test_the_job_ends_and_the_verdict_so_far_is_told(job: subprocess.Popen[str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    refusing = stand_in(tmp_path / "spies", f"touch {begun}; echo 'Permission Denied: Try again' >&2; exit 1")
    watching = watch(str(job.pid), "--json", "-", spies=refusing)
    wait_for(begun)
    time.sleep(0.2)  # the answer, which comes with the job alive
    job.kill()
    job.wait()
    out, err = watching.communicate(timeout=HANG_S)
    assert watching.returncode == 0
    assert len(err.splitlines()) == 1 and "The Python line is unknown" in err
    assert json.loads(out)["watch"]["has_ended"] is True


def test_killed_in_the_middle_of_a_look_it_leaves_the_job_alone(
    job: subprocess.Popen[str], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    watching = watch(str(job.pid), spies=stand_in(tmp_path / "spies", f"touch {begun}; exec sleep 1"))
    wait_for(begun)
    os.kill(watching.pid, signal.SIGKILL)
    watching.communicate(timeout=HANG_S)
    now = look_at(job.pid)
    assert job.poll() is None and now is not None and now.state in ("R", "S")


def test_what_cannot_be_watched_is_refused_in_one_line() -> None:
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        foreign = watch(str(sleeping.pid))
        _, err = foreign.communicate(timeout=HANG_S)
    finally:
        sleeping.kill()
        sleeping.wait()
    assert foreign.returncode == 2 and "(sleep) is not Python" in err.splitlines()[0]
    gone = watch(str(sleeping.pid))
    _, err = gone.communicate(timeout=HANG_S)
    assert gone.returncode == 2 and f"there is no process {sleeping.pid}" in err.splitlines()[0]
