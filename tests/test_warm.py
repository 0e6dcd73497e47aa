"""A process that was forked with torch at hand is, to the job in it, as one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import attributes
import warm
from findwall.model.arms import REPORT
from jobs import with_default_signals

pytest.importorskip("torch")

# What a job can see of how it began, of what its imports bring, and of how it ends.
SEEN = """
import atexit, gc, os, signal, sys, tempfile, threading
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
print(sys.executable, tempfile.gettempdir())
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


def ended(command: list[str], folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "GIVEN": "for this one", **given}
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=with_default_signals,
    )


@pytest.mark.long
def test_it_is_as_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    fresh = ended([sys.executable, "seen.py", "-x", "3"], tmp_path, TMPDIR=str(tmp_path))
    forked = ended(warm.command("seen.py", "-x", "3"), tmp_path, TMPDIR=str(tmp_path))
    assert fresh.returncode == 7, fresh.stderr
    assert forked.stdout.splitlines() == fresh.stdout.splitlines()
    assert (forked.returncode, forked.stderr) == (fresh.returncode, fresh.stderr)


# Whatever of findwall's is in torch and in the compiler, once both are there.
COMPILER = """
import attributes, torch
print(torch.manual_seed(0).initial_seed(), attributes.named(torch.manual_seed))
import torch._inductor.compile_fx
seen = attributes.look()
for name in sorted(attributes.findwalls(seen) - {"sys.meta_path[]"}):
    print(name, attributes.named(seen[name]))
print(attributes.named(torch.manual_seed), "torch._inductor.compile_fx" in seen)
"""


@pytest.mark.long
def test_the_compiler_finds_torch_as_in_a_fresh_process(tmp_path: Path) -> None:
    """It notes what a module's call is when it is imported: that has to be what findwall put there."""
    (tmp_path / "job.py").write_text(COMPILER)
    (tmp_path / "attributes.py").write_text(Path(attributes.__file__).read_text())
    words = ["-m", "findwall", "run", "--no-trace", "--apply", "bf16-autocast", "job.py"]
    environ = {REPORT: str(tmp_path / "report.json")}
    fresh, forked = (
        ended(command, tmp_path, **environ) for command in ([sys.executable, *words], warm.command(*words))
    )
    assert fresh.returncode == 0, fresh.stderr
    assert "torch._dynamo.utils.unpatched_nn_module_call Module._wrapped_call_impl" in fresh.stdout
    assert forked.stdout.splitlines() == fresh.stdout.splitlines()


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


def test_a_traceback_begins_with_the_jobs_own_lines(tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text("def fail():\n    raise KeyError('mine')\nfail()")
    commands = [sys.executable, "raises.py"], warm.command("raises.py")
    fresh, forked = (ended(command, tmp_path) for command in commands)
    assert (forked.returncode, forked.stderr) == (fresh.returncode, fresh.stderr) and fresh.returncode == 1
