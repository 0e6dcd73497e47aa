"""The script is the real `__main__`; what it prints, raises and returns is what plain python gives."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from jobs import HANG_S

NOTHING_MEASURED = "findwall: the job did not import torch, so there is nothing to measure\n"
ENDED = "findwall: the job ended with {} before it imported torch, so there is nothing to measure\n"

ABOUT_MAIN = """
    import os, sys
    print(__name__, __file__, __package__, __spec__, sys.argv, sys.path[0])
    print(sorted(n for n in dir() if n.startswith('__')), sys.modules['__main__'].__dict__ is globals())
    print(os.path.basename(sys.modules['__main__'].__file__), 'torch' in sys.modules, 'numpy' in sys.modules)
"""


def test_a_script_sees_what_plain_python_shows_it(jobs):
    jobs.write(ABOUT_MAIN)
    plain = jobs.plain("job.py", "--lr", "3", "--steps", "x")
    run = jobs.run(None, "--lr", "3", "--steps", "x", options=())
    assert (run.code, run.stdout) == (plain.code, plain.stdout)
    assert run.stderr == NOTHING_MEASURED


def test_a_module_sees_what_plain_python_shows_it(jobs):
    jobs.write("", "pack/__init__.py")
    jobs.write(
        "import sys\nprint(__name__, __spec__.name, __package__, sys.argv, sys.path[0])", "pack/mod.py"
    )
    jobs.write("from . import mod; print('main', __package__)", "pack/__main__.py")
    for module in ("pack.mod", "pack"):
        plain = jobs.plain("-m", module, "-v", "--", "x")
        run = jobs.run(None, "-v", "--", "x", target=("-m", module), options=())
        assert (run.code, run.stdout) == (plain.code, plain.stdout)


def test_a_folder_with_a_main_runs(jobs):
    jobs.write("import beside; print(__name__, beside.x)", "app/__main__.py")
    jobs.write("x = 3", "app/beside.py")
    assert jobs.run(None, target=("app",), options=()).stdout == jobs.plain("app").stdout == "__main__ 3\n"


def test_a_traceback_is_the_one_plain_python_prints(jobs):
    jobs.write(
        """
        def inner():
            try:
                {}['x']
            except KeyError as error:
                raise RuntimeError('boom') from error
        inner()
        """
    )
    plain, run = jobs.plain("job.py"), jobs.run(None, options=())
    assert run.code == plain.code == 1
    assert run.stderr == plain.stderr + ENDED.format("RuntimeError")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the table of lines had another format")
def test_a_traceback_with_a_place_that_has_no_line_is_shown(jobs):
    """Where Ctrl-C arrives is a matter of chance, and not every instruction belongs to a line."""
    jobs.write(
        """
        code = compile("1 / 0", "generated.py", "exec")
        exec(code.replace(co_linetable=b"\\xff" * len(code.co_code)))  # an entry that says: no line
        """
    )
    plain, run = jobs.plain("job.py"), jobs.run(None, options=())
    assert run.code == plain.code == 1
    assert run.stderr == plain.stderr + ENDED.format("ZeroDivisionError")


@pytest.mark.parametrize(
    "hook", ["lambda *_: 1 / 0", "lambda *_: sys.exit(7)", "lambda *_: print('seen')", "None"]
)
def test_a_hook_of_the_job_for_exceptions_may_do_as_it_likes(jobs, hook):
    jobs.write(f"import sys\nsys.excepthook = {hook}\nraise ValueError('mine')")
    plain, run = jobs.plain("job.py"), jobs.run(None, options=())
    assert (run.code, run.stdout) == (plain.code, plain.stdout)
    left = "sys.exit" in hook  # that is then how the job ends
    assert run.stderr == plain.stderr + (NOTHING_MEASURED if left else ENDED.format("ValueError"))


def test_a_missing_script_is_one_line_and_exit_code_two(jobs):
    run = jobs.run(None, target=("none.py",), options=())
    assert run.code == 2
    assert run.stderr.startswith("findwall: there is no script 'none.py'")
    assert jobs.run(None, target=("-m", "no.such"), options=()).code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_job_as_they_would_without_findwall(jobs, number):
    job = jobs.start(
        "import time, atexit\natexit.register(print, 'bye')\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.send_signal(number)
    out, err = job.communicate(timeout=HANG_S)
    assert job.returncode == -number
    if number is signal.SIGINT:  # an interrupted python still runs what was registered for the exit
        assert out == "bye\n"
        assert err.startswith("Traceback") and "KeyboardInterrupt" in err and "src/findwall/" not in err


IGNORED = """
    import os, signal
    for number in (signal.SIGINT, signal.SIGHUP):
        print(signal.getsignal(number) is signal.SIG_IGN)
        os.kill(os.getpid(), number)
    print("lives")
"""


def test_signals_that_were_ignored_from_the_start_stay_so(jobs):
    """As under nohup, or in the background of a script."""
    jobs.write(IGNORED)
    outcomes = [
        subprocess.run(
            ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh", *command],
            cwd=jobs.folder,
            env=jobs.environment(),
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        for command in ([sys.executable, "job.py"], jobs.command("job.py"))
    ]
    assert [(one.returncode, one.stdout) for one in outcomes] == [(0, b"True\nTrue\nlives\n")] * 2


SPAWN = """
    import multiprocessing as mp
    class Thing:
        def __init__(self, x): self.x = x
    def work(thing): return thing.x * 2
    if __name__ == '__main__':
        with mp.get_context('spawn').Pool(1) as pool:
            print(pool.map(work, [Thing(4)]))
"""


def test_spawned_workers_import_the_script_again(jobs):
    run = jobs.run(SPAWN, options=())
    assert (run.code, run.stdout) == (0, "[8]\n")


def test_disabled_it_is_plain_python(warm_jobs, training):
    run = warm_jobs.run(
        training("print(train(3).item()); print(sys.modules.get('findwall.agent.x'))"), FINDWALL_DISABLE="1"
    )
    assert run.code == 0
    assert run.stderr == ""
    assert not run.folder.exists()


LEAVING = {
    "early": ("train(6); sys.exit(5)", 5),
    "late": ("train(40); sys.exit(5)", 5),
    "without-steps": ("sys.exit(5)", 5),
}


@pytest.mark.parametrize("name", LEAVING)
def test_a_document_is_written_once_however_the_job_ends(warm_jobs, training, name):
    source, code = LEAVING[name]
    run = warm_jobs.run(training(source), options=("--wait", "2", "--steps", "6", "--json", "kept.json"))
    assert (run.code, (warm_jobs.folder / "kept.json").read_text()) == (code, "{}"), run.stderr


def test_a_document_that_cannot_be_written_leaves_the_exit_code_alone(warm_jobs, training):
    run = warm_jobs.run(training("train(4); sys.exit(5)"), options=("--json", "no/such/folder.json"))
    assert run.code == 5 and "cannot write" in run.stderr


def test_an_interrupted_job_still_writes_its_document(jobs, training):
    job = jobs.start(
        training("train(4); print('ready', flush=True)\nimport time; time.sleep(600)"),
        options=("--json", "kept.json"),
    )
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    out, _ = job.communicate(timeout=HANG_S)
    assert job.returncode == -signal.SIGINT and out == ""
    assert (jobs.folder / "kept.json").read_text() == "{}"
