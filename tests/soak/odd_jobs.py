"""Jobs that do what few do: each run by plain python and under findwall, which must look the same."""

# ruff: noqa: E501 - each of these programs is one line of the table

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import warm
from jobs import HANG_S, Jobs, training, with_default_signals

# Kineto's lines too, which our trace makes it write.
OURS = re.compile(
    rb"^(findwall: .*|THE VERDICT|(USDT|STAGE):\d.*|ERROR: External init callback .*)\n", re.MULTILINE
)
ADDRESS = re.compile(rb"0x[0-9a-f]{6,}")
OWN_FRAME = re.compile(rb'File "[^"]*/src/findwall/[^"]*"')
TRACED = ("--wait", "2", "--steps", "5")
ODD = os.fsdecode(b"n\xff\xe9")


@dataclass(frozen=True)
class OddJob:
    """A script, what lies beside it, and how it is started."""

    source: str | bytes
    arguments: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    before: str = ":"  # what the shell does before it becomes the job
    after: str = ""  # redirections
    name: str = "job.py"
    said: bytes = b""  # must be on stdout, so that a job which fails both ways does not count


def trains(rest: str, **more: object) -> OddJob:
    """One that imports torch and takes steps."""
    return OddJob(training(rest), **more)  # type: ignore[arg-type]


def same_as_plain(folder: Path, job: OddJob, is_warm: bool = False) -> None:
    """Output, errors and exit code under findwall as in plain python; and nothing of ours is left running."""
    jobs = Jobs(folder)
    source = job.source.encode() if isinstance(job.source, str) else job.source
    (folder / job.name).write_bytes(textwrap.dedent(source.decode("latin-1")).encode("latin-1"))
    for name, text in job.beside.items():
        jobs.write(text, name)
    script = str(folder / job.name) if "cd " in job.before else job.name
    commands = [
        [sys.executable, script, *job.arguments],
        jobs.command(script, *job.arguments, options=TRACED),
    ]
    if is_warm:
        commands = [warm.command(*words[1:], env=jobs.environment(**job.environ)) for words in commands]
    plain, run = (_finish(jobs, job, command) for command in commands)
    assert (run.returncode, run.stdout) == (plain.returncode, plain.stdout), run.stderr[-2000:]
    assert _errors(run.stderr) == _errors(plain.stderr), (run.stderr[-2000:], plain.stderr[-2000:])
    assert job.said in run.stdout, plain.stderr[-2000:]
    assert not OWN_FRAME.search(run.stderr)
    assert not left_running(folder)


def _errors(stderr: bytes) -> bytes:
    """What the job said there, without what is ours and what differs from one run to the next."""
    return ADDRESS.sub(b"0x", OURS.sub(b"", stderr))


def _finish(jobs: Jobs, job: OddJob, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'{job.before}; exec "$@" {job.after}', "bash", *command],
        cwd=jobs.folder,
        env=jobs.environment(**job.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=HANG_S,
        check=False,
        preexec_fn=with_default_signals,
    )


def processes(folder: Path) -> list[str]:
    """Those whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def left_running(folder: Path, patience_s: float = 60.0) -> list[str]:
    """Processes of a run that has ended, after the moment they need to leave."""
    until = time.monotonic() + patience_s
    while processes(folder) and time.monotonic() < until:
        time.sleep(0.02)
    return processes(folder)


OWN_NAMES = (
    *("click", "statistics", "platform", "random", "tempfile", "socket", "email", "json", "queue"),
    *("msgspec", "rich", "pynvml", "psutil", "threading"),
)

ENDINGS = {
    "exit-code": OddJob("import sys; print('a'); sys.exit(7)"),
    "exit-text": OddJob("raise SystemExit('gone')"),
    "exit-zero": OddJob("import sys; sys.exit()"),
    "exit-large": OddJob("raise SystemExit(300)"),
    "exit-negative": OddJob("raise SystemExit(-1)"),
    "exit-object": OddJob("raise SystemExit(['a', 1])"),
    "exit-in-exit": OddJob("import atexit, sys; atexit.register(sys.exit, 3); print('a')"),
    "hard-exit": OddJob("import os; print('a', flush=True); os._exit(9)"),
    "pipe-error": OddJob("raise BrokenPipeError('p')"),
    "interrupt": OddJob("raise KeyboardInterrupt('own')"),
    "group": OddJob("raise BaseException('b')"),
    "atexit": OddJob("import atexit; atexit.register(print, 'late'); print('early')"),
    "atexit-raising": OddJob("import atexit; atexit.register(lambda: 1 / 0); print('early')"),
    "hook": OddJob("import sys; sys.excepthook = lambda *e: print('mine', e[0]); raise KeyError(1)"),
    "chained": OddJob("try: {}['x']\nexcept KeyError as e: raise RuntimeError('boom') from e"),
    "abort": OddJob("import os; print('a', flush=True); os.abort()"),
    "segfault": OddJob("import ctypes; print('a', flush=True); ctypes.string_at(1)"),
    "unraisable": OddJob("class A:\n    def __del__(self): raise KeyError(1)\nA()\nprint('a')"),
    "syntax": OddJob("print('a'\nx = = 3"),
    "indentation": OddJob("def f():\nreturn 1"),
    "null-byte": OddJob(b"print('a')\0"),
    "bad-source": OddJob(b"print('\xff')"),
    "latin-source": OddJob(b"# coding: latin-1\nprint(ascii('\xff'))", said=b"xff"),
    "byte-order-mark": OddJob(b"\xef\xbb\xbfprint('a')", said=b"a"),
    "empty": OddJob(""),
    "missing-import": OddJob("import no_such_module_anywhere"),
    "future": OddJob("from __future__ import annotations\ndef f(x: Nowhere): pass\nprint(f.__annotations__)"),
}

CHILDREN = {
    "fork": OddJob(
        "import os, sys\nprint('both')\nif os.fork() == 0:\n    print('child'); sys.exit(4)\n"
        "print(os.wait()[1])",
        said=b"1024",
    ),
    "fork-raising": OddJob("import os\nif os.fork() == 0: raise KeyError('child')\nprint(os.wait()[1])"),
    "double-fork": OddJob(
        "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os._exit(0)\n    os._exit(2)\n"
        "print(os.wait()[1])"
    ),
    "exec": OddJob("import os, sys\nos.execv(sys.executable, ['p', '-c', 'print(5); raise SystemExit(6)'])"),
    "no-child": OddJob(
        "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')", said=b"none"
    ),
    "subprocess": OddJob(
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', "
        "'import sys; print(sys.argv, len(sys.path))'], capture_output=True).stdout)"
    ),
    "environment": OddJob("import os\nprint(sorted(k for k in os.environ if k not in ('_', 'OLDPWD')))"),
    "pool-fork": OddJob(
        "import multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
        said=b"[1, 2]",
    ),
    "pool-spawn": OddJob(
        "import multiprocessing as mp\nclass T:\n    x = 4\ndef f(t): return t.x * 2\n"
        "if __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as p: print(p.map(f, [T()]))",
        said=b"[8]",
    ),
    "pool-server": OddJob(
        "import multiprocessing as mp\ndef f(x): return x * 2\nif __name__ == '__main__':\n"
        "    with mp.get_context('forkserver').Pool(1) as p: print(p.map(f, [4]))",
        said=b"[8]",
    ),
    "manager": OddJob(
        "import multiprocessing as mp\nif __name__ == '__main__':\n"
        "    with mp.get_context('fork').Manager() as m: print(list(m.list([1, 2])))",
        said=b"[1, 2]",
    ),
    "executor": OddJob(
        "from concurrent.futures import ProcessPoolExecutor as P\nif __name__ == '__main__':\n"
        "    with P(1) as p: print(p.submit(pow, 2, 5).result())",
        said=b"32",
    ),
    "child-dies": OddJob(
        "import multiprocessing as mp, os\nif __name__ == '__main__':\n"
        "    p = mp.get_context('fork').Process(target=os._exit, args=(7,)); p.start(); p.join(); print(p.exitcode)",
        said=b"7",
    ),
}

THREADS_AND_SIGNALS = {
    "thread": OddJob(
        "import threading as t; t.Thread(target=lambda: (t.Event().wait(.05), print('t'))).start()"
    ),
    "thread-raising": OddJob(
        "import threading as t\nt.excepthook = lambda a: print('own', a.exc_type)\nx = t.Thread(target=lambda: 1 / 0)\n"
        "x.start(); x.join()"
    ),
    "thread-exit": OddJob(
        "import threading as t, sys; t.Thread(target=sys.exit, args=(3,)).start(); print('a')"
    ),
    "daemon": OddJob(
        "import threading as t; t.Thread(target=t.Event().wait, daemon=True).start(); print(t.active_count())",
        said=b"2",
    ),
    "asyncio": OddJob(
        "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))"
    ),
    "handlers": OddJob(
        "import signal\nfor s in sorted(signal.valid_signals()):\n    print(int(s), signal.getsignal(s))"
    ),
    "own-int": OddJob(
        "import os, signal, sys\nsignal.signal(2, lambda *_: (print('int'), sys.exit(5)))\nos.kill(os.getpid(), 2)\n"
        "signal.pause()"
    ),
    "own-term": OddJob(
        "import os, signal, sys\nsignal.signal(15, lambda *_: (print('term'), sys.exit(6)))\n"
        "os.kill(os.getpid(), 15)\nsignal.pause()"
    ),
    "term": OddJob("import os; print('a', flush=True); os.kill(os.getpid(), 15)"),
    "int": OddJob("import os; print('a', flush=True); os.kill(os.getpid(), 2)\nfor _ in range(10**9): pass"),
    "alarm": OddJob(
        "import signal\nsignal.signal(14, lambda *_: print('alarm'))\nsignal.setitimer(0, .05)\nsignal.pause()"
    ),
    "child-signal": OddJob(
        "import os, signal, time\nsignal.signal(17, lambda *_: print('child'))\nif os.fork() == 0: os._exit(0)\n"
        "time.sleep(.2)\nprint(os.wait()[1])"
    ),
    "blocked": OddJob("import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"),
}

STREAMS = {
    "close-stdout": OddJob("import sys; print('a'); sys.stdout.close()"),
    "close-stderr": OddJob("import sys; print('a'); sys.stderr.close()"),
    "close-both": OddJob("import sys; sys.stdout.close(); sys.stderr.close(); sys.exit(3)"),
    "no-streams": OddJob("import sys; sys.stdout = sys.stderr = None"),
    "close-descriptors": OddJob("import os; print('a', flush=True); os.close(1); os.close(2)"),
    "full": OddJob("import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('a')"),
    "no-stdin": OddJob("import sys; print(sys.stdin, open('/dev/null').fileno())", after="<&-", said=b"None"),
    "no-stdout": OddJob("import sys; print('a'); sys.exit(3)", after=">&-"),
    "no-stderr": OddJob("import sys; print('a'); sys.exit('gone')", after="2>&-"),
    "no-stream-at-all": OddJob("import sys; print('a'); sys.exit(4)", after="<&- >&- 2>&-"),
    "input": OddJob("print(input() + input())", after="<<< $'a\\nb'", said=b"ab"),
    "end-of-input": OddJob("input()"),
    "head": OddJob("for i in range(10**5): print(i)", after="| head -n 1"),
    "much": OddJob("for i in range(300): print('x' * 10**4)"),
    "ascii": OddJob("print('\\xe9')", environ={"PYTHONIOENCODING": "ascii"}),
    "plain-locale": OddJob("import sys; print(sys.stdout.encoding, ascii('\\xe9'))", environ={"LC_ALL": "C"}),
    "logging": OddJob("import logging; logging.warning('w'); logging.getLogger('x').error('e')"),
    "warning": OddJob("import warnings; warnings.warn('own')"),
}

SURROUNDINGS = {
    "own-modules": OddJob(
        "\n".join(f"import {name}" for name in OWN_NAMES),
        beside={f"{name}.py": f"print('own {name}')" for name in OWN_NAMES},
        said=b"own psutil",
    ),
    "path-later": OddJob(
        "import sys\nsys.path.insert(0, 'lib')\nimport click\nimport statistics",
        beside={
            "lib/click.py": "print('own click')",
            "lib/random.py": "print('own random')\nfrom _random import Random",
        },
        said=b"own random",
    ),
    "modules": OddJob(
        "import sys\nfor n in ('click', 'msgspec', 'statistics', 'zipfile', 'subprocess', 'numpy', 'email'):\n"
        "    print(n, n in sys.modules)"
    ),
    "main": OddJob(
        "import os, sys\nprint(__name__, __file__, __package__, __spec__, sys.argv, sys.path[0])\n"
        "print(sorted(n for n in dir() if n.startswith('__')), sys.modules['__main__'].__dict__ is globals())",
        arguments=("--lr", "3", "--", "--steps", "x"),
    ),
    "pickle-main": OddJob("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)"),
    "runpy": OddJob(
        "import runpy; runpy.run_path('other.py', run_name='x')", beside={"other.py": "print(__name__)"}
    ),
    "odd-arguments": OddJob(
        "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])",
        arguments=(ODD, "", " ", "-h", "\u2603"),
    ),
    "odd-name": OddJob("import sys; print(ascii(sys.argv))", name=f"{ODD}.py"),
    "space-name": OddJob("print(__file__[-10:])", name="a b'\".py"),
    "unwritable": OddJob("import os; print(os.getcwd())", before="cd /proc", said=b"/proc"),
    "chdir": OddJob("import os; os.chdir('/'); print(os.getcwd())"),
    "gone-folder": OddJob(
        "import os; os.mkdir('x'); os.chdir('x'); os.rmdir('../x'); print(os.path.exists('.'))"
    ),
    "umask": OddJob("import os; print(os.umask(0))"),
    "limits": OddJob(
        "import resource as r; print([r.getrlimit(x) for x in range(10)], r.getpriority if 0 else '')"
    ),
    "few-files": OddJob("print([open('/dev/null').fileno() for _ in range(3)])", before="ulimit -n 16"),
    "small-stack": OddJob("print(sum(range(9)))", before="ulimit -s 512"),
    "small-memory": OddJob("print(len(bytes(10**6)))", before="ulimit -v 2000000"),
    "no-files": OddJob("open('mine', 'w').write('a')\nprint('a')", before="ulimit -f 0"),
    "little-time": OddJob("while True: pass", before="ulimit -t 2"),
    "optimized": OddJob("assert False\nprint(__debug__)", environ={"PYTHONOPTIMIZE": "2"}, said=b"False"),
    "warnings-are-errors": OddJob("print('a')", environ={"PYTHONWARNINGS": "error"}, said=b"a"),
    "development": OddJob("print('a')", environ={"PYTHONDEVMODE": "1"}, said=b"a"),
    "safe-path": OddJob("import sys; print(sys.path[0])", environ={"PYTHONSAFEPATH": "1"}),
    "hash-seed": OddJob("print(hash('a'))", environ={"PYTHONHASHSEED": "7"}),
    "no-home": OddJob("print('a')", environ={"HOME": "/no/where", "TMPDIR": "/no/where"}, said=b"a"),
    "settings": OddJob(
        "import gc, sys, threading\nprint(gc.isenabled(), gc.get_threshold(), sys.gettrace(), sys.getprofile())\n"
        "print(sys.getswitchinterval(), sys.getrecursionlimit(), threading.active_count(), sys.flags)"
    ),
    "own-trace": OddJob("import sys\nsys.settrace(lambda *a: None)\ndef f(): return 1\nprint(f())"),
    "recursion": OddJob("def f(): return f()\ntry: f()\nexcept RecursionError: print('deep')", said=b"deep"),
}

TRAINING_JOBS = {
    "trains": trains("print(train(60).item())"),
    "trains-forks": trains(
        "import os\ntrain(40)\nif os.fork() == 0: sys.exit(4)\nprint(os.wait()[1])", said=b"1024"
    ),
    "trains-raising": trains("train(8); raise ValueError('lost')"),
    "trains-exits": trains("import os\ntrain(30); print('a', flush=True); os._exit(5)", said=b"a"),
    "trains-aborts": trains("import os\ntrain(9); print('a', flush=True); os.abort()", said=b"a"),
    "trains-execs": trains(
        "import os\ntrain(20)\nos.execv(sys.executable, ['p', '-c', 'print(5)'])", said=b"5"
    ),
    "trains-in-a-thread": trains(
        "import threading as t\nx = t.Thread(target=lambda: print(train(60).item())); x.start(); x.join()"
    ),
    "trains-interrupted": trains("import os\ntrain(9); os.kill(os.getpid(), 2)\nfor _ in range(10**9): pass"),
    "trains-saves-on-term": trains(
        "import os, signal\nsignal.signal(15, lambda *_: (print('saved'), sys.exit(3)))\ntrain(9)\n"
        "os.kill(os.getpid(), 15)\ntrain(10**9)",
        said=b"saved",
    ),
    "trains-loads": trains(
        "from torch.utils.data import DataLoader\ndef main():\n"
        "    for batch in DataLoader(range(40), num_workers=2): train(1)\n    print(batch)\n"
        "if __name__ == '__main__': main()",
        said=b"39",
    ),
    "trains-profiles": trains(
        "from torch.profiler import profile, ProfilerActivity\n"
        "with profile(activities=[ProfilerActivity.CPU]) as p: train(20)\n"
        "print(sum(e.name == 'aten::mse_loss' for e in p.events()), len(p.events()) > 20)",
        said=b"True",
    ),
    "trains-without-files": trains(
        "import os\nos.closerange(3, 4096)\ntrain(40)\nprint(open('/dev/null').fileno())", said=b"3"
    ),
    "trains-without-streams": trains("sys.stdout.close(); sys.stderr.close(); train(40)"),
    "trains-with-few-files": trains("print(train(40).item())", before="ulimit -n 64"),
    "trains-without-space": trains("print(train(40).item())", before="ulimit -f 0"),
    "trains-unwritable": trains("print(train(40).item())", before="cd /proc"),
    "trains-without-home": trains("print(train(40).item())", environ={"HOME": "/no", "TMPDIR": "/no"}),
    "trains-elsewhere": trains(
        "import os, tempfile\nwith tempfile.TemporaryDirectory() as d:\n    os.chdir(d); train(20)\nprint(train(20).item())"
    ),
    "trains-and-deletes-our-folder": trains(
        "import shutil\ntrain(9); shutil.rmtree('run', ignore_errors=True); print(train(40).item())"
    ),
    "trains-without-collector": trains("import gc\ngc.disable(); print(train(40).item(), gc.isenabled())"),
    "trains-own-step": trains(
        "first = torch.optim.Optimizer.step\ntype(optimizer).step = lambda self: print('own')\ntrain(3)",
        said=b"own",
    ),
    "trains-own-names": trains(
        "import statistics, click\ntrain(60)\nimport msgspec, shlex",
        beside={f"{n}.py": f"print('own {n}')" for n in ("click", "statistics", "msgspec", "shlex", "rich")},
        said=b"own shlex",
    ),
    "trains-compiled": trains(
        "f = torch.compile(model, backend='eager')\nfor _ in range(30): f(torch.ones(4, 8)).sum().backward(); "
        "optimizer.step()\nfrom torch._dynamo.utils import counters\nprint(counters['stats']['unique_graphs'])"
    ),
    "false-torch": OddJob("import torch\nprint(torch.x)", beside={"torch.py": "x = 5"}, said=b"5"),
    "false-torch-folder": OddJob(
        "import torch, torch.optim\nprint(torch.x)",
        beside={"torch/__init__.py": "x = 5", "torch/optim.py": ""},
        said=b"5",
    ),
    "torch-fails": OddJob(
        "try: import torch\nexcept ImportError as e: print(e)", beside={"torch.py": "raise ImportError('no')"}
    ),
    "torch-unused": OddJob("import torch\nprint(torch.ones(2).sum().item())", said=b"2.0"),
}

JOBS: dict[str, OddJob] = {
    **ENDINGS, **CHILDREN, **THREADS_AND_SIGNALS, **STREAMS, **SURROUNDINGS, **TRAINING_JOBS,
}  # fmt: skip
