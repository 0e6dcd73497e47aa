"""Python with torch in it already: jobs are forked from one process, and start in a fraction of the time.

`command(…)` is what `[sys.executable, …]` would be, for `subprocess`: streams, folder, environment, exit code
and signals are those of the process that it starts. torch and the compiler come into the job where it imports
them, through the same import machinery and the same hooks, but their files have been executed before.

For tests of what findwall does in a job. What hangs on a fresh interpreter (its first modules, its command
line, variables that libraries read while they are loaded, numbers drawn without a seed, what is collected
when it ends) is tested with a fresh one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent / "warming"
# In the order in which they import each other, with all that comes with each.
MODULES = ("numpy", "torch", "torch._dynamo", "torch._inductor.compile_fx")
# Its frames are below those of every job: in no file, they are not taken for the job's own.
UNNAMED = "import sys; exec(compile(open(sys.argv.pop(1)).read(), '<warm>', 'exec'))"
# They are read while torch is imported: where they differ, another process is kept.
READ_EARLY = ("OMP_NUM_THREADS", "PYTHONPATH")


def command(*words: str, env: dict[str, str] | None = None) -> list[str]:
    """For a python that is to run `words`, as in `-m findwall …`, with this environment."""
    given = os.environ if env is None else env
    with _one_at_a_time:
        address = _kept(tuple(given.get(name) for name in READ_EARLY))
    return [sys.executable, "-I", "-S", str(HERE / "ask.py"), address, *words]


def program(path: Path) -> str:
    """A file that stands for `sys.executable`, where others put the command together."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    path.chmod(0o755)
    return str(path)


_one_at_a_time = threading.Lock()


@cache
def _kept(early: tuple[str | None, ...]) -> str:
    """Start it, once for each process of pytest. It ends when its standard input does, and so with that."""
    changed = dict(zip(READ_EARLY, early, strict=True))
    env = {name: value for name, value in {**os.environ, **changed}.items() if value is not None}
    words = [sys.executable, "-c", UNNAMED, str(HERE / "keep.py"), *MODULES]
    keeper = subprocess.Popen(  # from here: a test may stand in a folder with modules of its own
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=HERE
    )
    atexit.register(keeper.communicate)
    assert keeper.stdout is not None
    address = keeper.stdout.readline().strip()
    assert address, "it did not start"
    return address
