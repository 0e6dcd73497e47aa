"""The live line: on a terminal only, and never in the way of what the job writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from findwall.agent.ending import statusline, stderr
from findwall.model.measurement import Measurement

# Gives its command a terminal of its own, and passes on what appears there.
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"

SLOW = """
    import time
    for number in range(120):
        train(1)
        time.sleep(0.04)
        if number % 10 == 9:
            print(f'step {number} of the job', flush=True)
"""
# Two looks of the line's thread, of which each would draw one.
SHORT = SLOW.replace("120", "60")


def on_terminal(jobs, *command: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL, *command],
        cwd=jobs.folder,
        env=jobs.environment(**{"TERM": "xterm", **environ}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def warmed(jobs, *options: str) -> list[str]:
    return warm.command(*jobs.command("job.py", options=options)[1:], env=jobs.environment())


def screen(text: str) -> list[str]:
    """What stands on the terminal in the end."""
    lines, column = [""], 0
    rest = text
    while rest:
        if rest.startswith("\x1b[K"):
            lines[-1], rest = lines[-1][:column], rest[3:]
            continue
        sign, rest = rest[0], rest[1:]
        if sign == "\r":
            column = 0
        elif sign == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] = lines[-1][:column].ljust(column) + sign + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


def test_the_line_comes_and_goes_and_the_jobs_own_lines_stay_whole(jobs, training):
    jobs.write(training(SLOW))
    shown = on_terminal(jobs, *jobs.command("job.py", options=("--wait", "30", "--steps", "30")))
    assert "\rfindwall: warm-up " in shown.replace("\x1b[K", "") and " of 30" in shown
    assert "findwall: timing " in shown
    assert "findwall: thinking" in shown
    left = screen(shown)
    printed = [f"step {number} of the job" for number in range(9, 120, 10)]
    assert [line for line in left if line.startswith("step")] == printed
    assert not [line for line in left if "warm-up" in line or "timing" in line or "thinking" in line]


UNFINISHED = """
    import time
    print('loading ', end='', flush=True)
    for number in range(60):
        train(1)
        time.sleep(0.05)
    print('done', flush=True)
"""


def test_a_line_the_job_has_not_ended_is_left_alone(jobs, training):
    jobs.write(training(UNFINISHED))
    shown = on_terminal(jobs, *warmed(jobs, "--wait", "20", "--steps", "20"))
    assert "loading done" in shown.replace("\r\n", "\n").splitlines()
    assert "warm-up" not in shown


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"FINDWALL_DISABLE": "1"}])
def test_nothing_on_a_terminal_that_cannot_erase_or_with_findwall_off(jobs, training, environ):
    jobs.write(training(SHORT))
    shown = on_terminal(jobs, *warmed(jobs, "--wait", "30", "--steps", "30"), **environ)
    assert "\x1b" not in shown and "warm-up" not in shown


def test_nothing_in_a_pipe(warm_jobs, training):
    run = warm_jobs.run(training(SHORT), options=("--wait", "30", "--steps", "30"), TERM="xterm")
    assert "\x1b" not in run.stdout + run.stderr and "\r" not in run.stdout + run.stderr
    assert "warm-up" not in run.stderr


CHILD = """
    import os, time
    for number in range(100):
        train(1)
        time.sleep(0.02)
        if number == 80:
            child = os.fork()
            if child == 0:
                print('from the child', vars(sys.stdout).get('write'), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    print('from the job', flush=True)
"""


def test_a_forked_child_has_its_streams_as_they_were(jobs, training):
    jobs.write(training(CHILD))
    shown = on_terminal(jobs, *warmed(jobs, "--wait", "30", "--steps", "200"))
    assert "from the child None" in shown.replace("\r\n", "\n")
    assert "from the job" in screen(shown)


class Stage:
    def __init__(self, name: str) -> None:
        self.name = name


class Engine:
    """As much of one as the line asks."""

    def __init__(
        self, stage: str | None, ended: int, wait: int | None = None, steps: int | None = None
    ) -> None:
        self.stage = None if stage is None else Stage(stage)
        self.steps_ended = ended
        self.record = Measurement(first_timed=20)
        self.record.steps.host_ns = [50_000_000] * 8
        self.timer = None
        self.options = type("Options", (), {"wait": wait, "steps": steps})()


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        (Engine(None, 0), ""),
        (Engine("warm-up", 3), "warm-up 3 of about 10"),
        (Engine("warm-up", 33), "warm-up 33"),
        (Engine("warm-up", 3, wait=5), "warm-up 3 of 5"),
        (Engine("timing", 28), "timing 8 of about 40"),
        (Engine("timing", 28, steps=30), "timing 8 of 30"),
        (Engine("trace", 60), "tracing"),
        (Engine("agree", 60), "tracing"),
    ],
)
def test_how_far_it_is(engine, told):
    assert statusline.describe(engine) == told


def test_every_stage_has_its_words():
    agent = Path(statusline.__file__).parents[1]
    files = ("stages/*.py", "allocations/memory_recording.py")
    code = "".join(one.read_text() for part in files for one in agent.glob(part))
    names = {line.split('"')[1] for line in code.splitlines() if line.startswith('    name = "')}
    assert names == {"warm-up", "timing", *statusline.WORDS}


def test_nobody_watches_a_file(tmp_path, monkeypatch):
    kept = os.dup(2)
    file = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    monkeypatch.setenv("TERM", "xterm")
    try:
        os.dup2(file, 2)
        assert not stderr.is_watched()
        assert statusline.StatusLine.begin(lambda: None) is None
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
