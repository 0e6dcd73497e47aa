"""Jobs under findwall, killed at a random moment: they end as plain python would, and nothing is left."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

from jobs import HANG_S, Jobs, training, with_default_signals
from soak.chance import Rolled
from soak.folders import survives
from soak.odd_jobs import OWN_FRAME, left_running

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LINES = 40
JOB = training(
    f"""
    for line in range({LINES}):
        train(4)
        print("line", line, flush=True)
    """
)
START_UP_S = 3.0  # in which a job loads torch, on a usual machine
BETWEEN_S = 0.05  # two lines of the job, under the profiler at times
OPTIONS = ("--wait", "2", "--steps", "6")


def kill_at_random(folder: Path, chance: Rolled, number: signal.Signals | None = None) -> str:
    """Start the job, kill it at a moment that chance chooses, look at what is left. Gives when it was."""
    jobs = Jobs(folder)
    jobs.write(JOB)
    number = number or chance.one_of(SIGNALS)
    lines = chance.one_of([0, 0, chance.number(1, LINES), chance.number(1, LINES)])
    pause = chance.seconds(BETWEEN_S if lines else START_UP_S)
    process = subprocess.Popen(
        jobs.command("job.py", options=OPTIONS),
        cwd=folder,
        env=jobs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=with_default_signals,
    )
    out, err = _killed_after(process, lines, pause, number)
    expected = b"".join(b"line %d\n" % line for line in range(LINES))
    assert expected.startswith(out), out[-200:]
    ended = process.returncode == 0
    excused = _python_was_starting(err) or _torch_was_starting(err)
    wrapped = process.returncode == 1 and _a_class_was_made(err)
    assert process.returncode in (0, -number) or excused or wrapped, (process.returncode, err[-2000:])
    assert not ended or out == expected
    if number != signal.SIGINT:
        assert b"Traceback" not in err, err[-2000:]
    assert not OWN_FRAME.search(err), err[-2000:]
    assert not left_running(folder)
    _look_at_the_folder(folder / "run")
    return "ended before" if ended else "in the loop" if out else "before the first line"


def _killed_after(
    process: subprocess.Popen[bytes], lines: int, pause: float, number: int
) -> tuple[bytes, bytes]:
    """Read `lines` lines, wait, send the signal. Gives all of stdout and stderr."""
    assert process.stdout is not None and process.stderr is not None
    errors: list[bytes] = []
    reading = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)  # type: ignore[union-attr]
    reading.start()
    hanging = threading.Timer(HANG_S, process.kill)
    hanging.start()
    try:
        out = b"".join(process.stdout.readline() for _ in range(lines))
        time.sleep(pause)
        process.send_signal(number)
        out += process.stdout.read()
        process.wait(HANG_S)
    finally:
        hanging.cancel()
    reading.join(HANG_S)
    assert errors, "somebody still holds the job's stderr"
    return out, errors[0]


def _python_was_starting(err: bytes) -> bool:
    """An interpreter that is interrupted before it can run anything has an ending of its own."""
    return b"Fatal Python error" in err or b"<frozen site>" in err


def _torch_was_starting(err: bytes) -> bool:
    """torch throws away what is raised while it imports numpy, in plain python too; half a numpy is left."""
    return b"RecursionError" in err and b"numpy/__init__.py" in err


def _a_class_was_made(err: bytes) -> bool:
    """Python up to 3.11 turns what is raised inside a `__set_name__`, a Ctrl-C too, into a RuntimeError."""
    return b"KeyboardInterrupt" in err and b"Error calling __set_name__" in err


def _look_at_the_folder(folder: Path) -> None:
    """What a killed job leaves is nothing, refused in a line, or a run that can be read."""
    if folder.exists():
        survives(folder)
