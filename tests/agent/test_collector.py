"""Signals that come while the garbage collector runs reach the job, and not our callback alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

JOB = """
import gc, signal, time
from findwall.agent.timing.collector import watch_collector

took = []
watch_collector(lambda: False, took.append)
heap = [[[]] for _ in range(150_000)]

class TooLate(Exception):
    pass

def late(number, frame):
    raise TooLate

HANDLER
signal.setitimer(signal.ITIMER_REAL, 0.001)
try:
    gc.collect()  # longer than the timer: the signal is handled in the callback behind it
    time.sleep(10)
except EXPECTED:
    print("reached the job")
"""


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("signal.signal(signal.SIGALRM, late)", "TooLate"),
        ("signal.signal(signal.SIGALRM, signal.default_int_handler)", "KeyboardInterrupt"),
    ],
)
def test_a_signal_during_a_collection_reaches_the_job(handler: str, expected: str) -> None:
    script = textwrap.dedent(JOB).replace("HANDLER", handler).replace("EXPECTED", expected)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "reached the job\n", "")


def test_what_else_a_callback_throws_is_told_as_before() -> None:
    script = """
    import gc
    from findwall.agent.timing.collector import watch_collector
    watch_collector(lambda: 1 / 0, print)
    gc.collect()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr


LINES = """
import gc
from findwall.agent.timing import collector

collector.watch_collector(lambda: False, lambda ns: None)
heap = [[[]] for _ in range(60_000)]
FIRST
print(collector.asked_at())
"""


@pytest.mark.parametrize(
    ("first", "line"),
    [("gc.collect()", "job.py:7"), ("more = [[[]] for _ in range(180_000)]", ""), ("", "")],
)
def test_the_line_that_asks_for_collections_is_known(tmp_path: Path, first: str, line: str) -> None:
    """Python's own collections come wherever there is one object too many."""
    (tmp_path / "job.py").write_text(LINES.replace("FIRST", first))
    done = subprocess.run([sys.executable, "job.py"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (line, "")
