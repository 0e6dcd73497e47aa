"""The job does not notice: its children, names, streams and secrets are as in plain python."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.agent.ending.analyst import COMMAND_VARIABLE
from findwall.agent.ending.helper_process import Helper
from findwall.agent.secrets import MASK, mask_arguments, mask_text
from jobs import HANG_S
from soak.odd_jobs import OWN_NAMES, left_running, processes

TRACED = ("--wait", "2", "--steps", "5")


def same(jobs, source, options=TRACED, warm=False):
    """Under findwall as in plain python: output and exit code. Gives the measured run."""
    jobs.write(source)
    plain = jobs.plain_warm("job.py") if warm else jobs.plain("job.py")
    run = jobs.run(None, options=options)
    assert (run.code, run.stdout) == (plain.code, plain.stdout), run.stderr
    return run


# Children.

FORKED = """
    import atexit, os, time
    train(40)
    atexit.register(print, "registered")
    def leave():
        print("child")
        sys.exit(4)
    def fail():
        raise KeyError("child")
    def become_another():
        os.execv(sys.executable, ["p", "-c", ""])
    for way in (leave, fail, sys.exit, become_another):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            way()
        until = time.monotonic() + 120
        status = None
        while status is None and time.monotonic() < until:
            pid, found = os.waitpid(child, os.WNOHANG)
            status = found if pid else None
            time.sleep(0.01)
        if status is None:
            os.kill(child, 9)
        print("its end:", status)
"""


def test_forked_children_leave_as_they_would_without_our_trace(jobs, training):
    pytest.importorskip("torch")
    run = same(jobs, training(FORKED), warm=True)
    assert run.measurement().trace.file and "its end: None" not in run.stdout
    assert run.stdout.count("its end:") == 4


WAITING = """
    import os, signal
    signal.signal(signal.SIGCHLD, lambda *_: print("a child has ended"))
    train(40)
    try:
        print(os.wait())
    except ChildProcessError:
        print("no child")
    import time; time.sleep(1.5)
"""


def test_the_verdict_is_no_child_of_the_job(warm_jobs, training):
    pytest.importorskip("torch")
    slow = warm_jobs.folder / "slow_verdict.py"
    slow.write_text("import time; time.sleep(0.5); print('THE VERDICT')")
    command = {COMMAND_VARIABLE: f"{sys.executable} {slow}"}
    run = warm_jobs.run(training(WAITING), options=TRACED, **command)
    assert (run.code, run.stdout) == (0, "no child\n") and "THE VERDICT" in run.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_of_ours_outlives_a_job_that_was_killed(jobs, number):
    job = jobs.start("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    assert len(processes(jobs.folder)) == 2  # the job and the helper
    job.send_signal(number)
    job.communicate(timeout=HANG_S)  # ends only when nobody holds its streams
    assert not left_running(jobs.folder)


def test_a_helper_whose_line_is_the_jobs_file_by_now_is_not_written_to(tmp_path):
    first, second = os.pipe()
    helper = Helper(second)
    os.close(second)
    mine = (tmp_path / "mine").open("wb")  # takes the number that is free
    assert mine.fileno() == second
    assert helper.ask(["true"], {}, tmp_path, 1, 2) is None
    helper.forget()
    mine.close()  # the job's, left open
    os.close(first)
    assert not (tmp_path / "mine").read_bytes()


def test_an_errand_is_run_waited_for_and_ended(tmp_path):
    """In a process of its own: it forks."""
    code = f"""
import os, subprocess, sys, time
from pathlib import Path
from findwall.agent.ending.helper_process import send_out
helper = send_out()
env = {{**os.environ, "ODD": os.fsdecode(b"\\xff")}}
here = Path({str(tmp_path)!r})
first = helper.ask(["sh", "-c", "printf $ODD; exit 3"], env, here, 1, 2)
print(first.wait(20), first.poll(), flush=True)
second = helper.ask(["sleep", "60"], env, here, 1, 2)
try:
    second.wait(0.1)
except subprocess.TimeoutExpired:
    print("late", flush=True)
second.kill()
print(second.wait(5) != 0, helper.ask(["no-such-command"], env, here, 1, 2).wait(20), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANG_S, check=True)
    assert done.stdout == b"\xff3 3\nlate\nTrue 1\n"


# Names.


@pytest.mark.parametrize("way", ["-m", "command"])
def test_modules_beside_the_script_are_the_ones_it_gets(jobs, way):
    for name in OWN_NAMES:
        jobs.write(f"print('own {name}')", f"{name}.py")
    source = "\n".join(f"import {name}" for name in OWN_NAMES)
    jobs.write(source)
    plain = jobs.plain("job.py")
    assert plain.stdout.count("own") == len(OWN_NAMES)
    if way == "-m":
        run = jobs.run(None, options=())
    else:
        run = jobs.plain(
            "-c", f"import sys; sys.path[0] = {sys.prefix!r}\nsys.argv[1:1] = ['run']\n{ENTRY}", "job.py"
        )
    assert (run.code, run.stdout) == (0, plain.stdout), run.stderr


ENTRY = "from findwall.cli import main; main()"


SHOWN = """
    import sys, types, collections.abc, threading, typing, importlib.metadata, pickle, re, enum
    for name in ("click", "msgspec", "statistics", "zipfile", "subprocess", "numpy", "email", "fractions"):
        print(name, name in sys.modules)
    import statistics, subprocess, tempfile, urllib.parse, concurrent.futures
    print(statistics.mean([1, 2, 6]), subprocess.run(["true"]).returncode, statistics.__spec__.name)
    print(collections.abc is sys.modules["collections.abc"])
    print(threading.main_thread() is threading.current_thread())
    print(pickle.loads(pickle.dumps(statistics.NormalDist())), statistics.__spec__.loader.__class__.__name__)
"""


def test_what_plain_python_would_not_have_loaded_is_not_there(jobs):
    same(jobs, SHOWN, options=())


def test_a_job_with_modules_of_our_names_is_measured(jobs, training):
    pytest.importorskip("torch")
    for name in ("click", "statistics", "msgspec", "shlex", "rich", "pynvml"):
        jobs.write(f"print('own {name}')", f"{name}.py")
    run = same(jobs, training("import statistics, click\ntrain(60)\nimport msgspec, shlex"))
    assert "THE VERDICT" in run.stderr and run.measurement().trace.file


# Streams.


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_from_the_start(jobs, closed):
    jobs.write("import time\nmine = open('mine', 'w')\nprint('kept', file=mine, flush=True)\ntime.sleep(0.1)")
    command = jobs.command("job.py")
    line = f"exec {' '.join(command)} {closed}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=jobs.folder, env=jobs.environment(), timeout=HANG_S, check=False
    )
    assert done.returncode == 0
    assert (jobs.folder / "mine").read_text() == "kept\n"


def test_names_that_are_no_text(jobs, training):
    pytest.importorskip("torch")
    odd = os.fsdecode(b"n\xff\xe9")
    folder = jobs.folder / odd
    folder.mkdir()
    (folder / f"{odd}.py").write_text(training("train(40)\nprint(len(sys.argv))"))
    out = folder / f"run{odd}"
    command = [sys.executable, "-m", "findwall", "run", *TRACED, "--out", str(out), f"{odd}.py", odd]
    env = jobs.environment(LC_ALL="C")
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stdout) == (0, b"2\n"), done.stderr
    assert b"THE VERDICT" in done.stderr and b"stopped measuring" not in done.stderr
    assert json.loads((out / "run.json").read_text())["argv"][1] == r"n\xff\xe9"
    assert (out / "rank0" / "trace.json.gz").is_file()


# Secrets.


def test_a_run_is_for_its_owner_only_and_holds_no_secret(warm_jobs, training):
    pytest.importorskip("torch")
    run = warm_jobs.run(training("train(40)"), "--hf-token", "hunter2", "--lr=3e-4", "sk-abcdefghijklmnop")
    for path in (run.folder, *run.folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600) or path.name == "diagnosis.json", path
        if path.is_file():
            assert b"hunter2" not in path.read_bytes() and b"sk-abc" not in path.read_bytes(), path
    assert "hunter2" not in run.stderr
    assert json.loads((run.folder / "run.json").read_text())["argv"] == [
        "job.py",
        "--hf-token",
        MASK,
        "--lr=3e-4",
        MASK,
    ]


SECRETS = [
    (["--token", "x"], ["--token", MASK]),
    (["--api_key=x"], [f"--api_key={MASK}"]),
    (["--hfToken", "x"], ["--hfToken", MASK]),
    (["WANDB_API_KEY=x"], [f"WANDB_API_KEY={MASK}"]),
    (["+logger.api_key=x"], [f"+logger.api_key={MASK}"]),
    (["--db-password-hash", "1"], ["--db-password-hash", MASK]),
    (["-H", "Authorization: Bearer x"], ["-H", f"Authorization:{MASK}"]),
    (["hf_abcdefghijkl"], [MASK]),
    (["AKIAIOSFODNN7EXAMPLE"], [MASK]),
    (["--x=ghp_abcdefghijklmnopqrst1"], [f"--x={MASK}"]),
    (["0123456789abcdef0123456789abcdef"], [MASK]),
    (["wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"], [MASK]),
    (["https://me:pass@host/x"], [f"https://{MASK}@host/x"]),
    (["postgres://me:pass@host/x"], [f"postgres://{MASK}@host/x"]),
]


@pytest.mark.parametrize(("given_", "kept"), SECRETS)
def test_secrets_are_masked(given_, kept):
    assert mask_arguments(["job.py", *given_, "--end"]) == ["job.py", *kept, "--end"]


def test_what_is_no_secret_stays():
    line = [
        *("train.py", "--num-tokens", "4096", "--tokenizer", "gpt2", "--key-dim", "64", "--lr=3e-4"),
        *("model.hidden=4", "--resume", "--name", "gpt2-small-bs32-lr3e4-Run7-with-a-very-long-name"),
        *("/data/imagenet/Train/very/long/path/to/it/1", "--url=http://host:80/path", "--no-token-cache"),
        *("-x", "3", "C:dir"),
    ]
    assert mask_arguments(line) == line


@given(st.lists(st.text(max_size=60), max_size=8), st.text(alphabet="abcXYZ019", min_size=12, max_size=40))
def test_masking_never_fails_and_leaves_no_value_of_a_secret_name(rest, secret):
    masked = mask_arguments([*rest, "--flag=1", "--password", f"~{secret}~", f"--secret=~{secret}~"])
    assert len(masked) == len(rest) + 4
    assert not any(f"~{secret}~" in one for one in masked[-4:])
    assert f"hf_{secret}" not in mask_text(f"the key is hf_{secret} here")
