"""A process that was forked with torch at hand is, to the job in it, as one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import warm
from jobs import with_default_signals

pytest.importorskip("torch")

# What a job can see of how it began, of what its imports bring, and of how it ends.
SEEN = """
import atexit, gc, os, signal, sys, threading
class Last:
    def __del__(self):
        print("gone")
last = Last()
atexit.register(print, "at the exit", gc.get_freeze_count())
after = lambda: (threading.main_thread().join(), print("a thread that stays"))
threading.Thread(target=after).start()
def there(*names):
    print(*(name in sys.modules for name in names))
print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), os.environ["GIVEN"], os.environ.get("HOME"))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM))
print(sys.executable)
there("torch", "numpy", "torch.nn", "torch._dynamo", "sympy")
import numpy
there("torch", "numpy")
import torch
there("torch", "numpy", "torch.nn", "torch._dynamo", "sympy", "torch.distributed.fsdp")
print("_dynamo" in vars(torch), type(torch.__spec__.loader), torch.__spec__.origin)
torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
there("torch._dynamo", "torch._dynamo.utils", "sympy", "torch.distributed.fsdp")
print("_dynamo" in vars(torch), torch.get_num_threads())
print("out", file=sys.stderr)
sys.exit(7)
"""


def ended(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "GIVEN": "for this one"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=with_default_signals,
    )


def test_it_is_as_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    fresh = ended([sys.executable, "seen.py", "-x", "3"], tmp_path)
    forked = ended(warm.command("seen.py", "-x", "3"), tmp_path)
    assert fresh.returncode == 7, fresh.stderr
    assert forked.stdout.splitlines() == fresh.stdout.splitlines()
    assert (forked.returncode, forked.stderr) == (fresh.returncode, fresh.stderr)


def test_it_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "compiles.py").write_text("import torch\ntorch.compile(torch.nn.Linear(1, 1))")
    done = ended(warm.command("compiles.py"), tmp_path)
    assert done.returncode == 1 and "needs a fresh process" in done.stderr


def test_it_does_where_the_compiler_is_left_to_the_job(tmp_path: Path) -> None:
    script = """
        import sys, torch
        print("torch._dynamo" in sys.modules)
        print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist())
    """
    (tmp_path / "compiles.py").write_text(textwrap.dedent(script))
    done = ended(warm.command("compiles.py", compiles=True), tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n[2.0, 2.0]\n"), done.stderr


def test_a_signal_that_ends_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os\nos.kill(os.getpid(), 15)")
    assert ended(warm.command("dies.py"), tmp_path).returncode == -signal.SIGTERM


def test_it_does_not_outlive_who_asked_for_it(tmp_path: Path) -> None:
    script = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    (tmp_path / "waits.py").write_text(script)
    asking = subprocess.Popen(warm.command("waits.py"), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    job = int(asking.stdout.readline())
    assert psutil.pid_exists(job)
    asking.kill()
    asking.communicate()
    until = time.monotonic() + 60
    while psutil.pid_exists(job) and time.monotonic() < until:
        time.sleep(0.01)
    assert not psutil.pid_exists(job)
