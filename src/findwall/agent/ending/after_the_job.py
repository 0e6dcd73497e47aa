"""What is measured once a job has ended well and nothing else wants its device; the verdict is said anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from findwall.agent.ending import analyst
from findwall.agent.ending.analyst import environment, start, wait
from findwall.agent.ending.closing import closing_line
from findwall.agent.ending.stderr import is_open, say
from findwall.agent.options import Options
from findwall.model.arms import LOOK
from findwall.model.measurement import DIAGNOSIS_FILE

# To measure a CPU: what it usually takes, what it may take where others use the cores too, and until its
# process is ended, which imports torch first. The first was timed on a machine with two cores.
CEILINGS_S, CEILINGS_MOST_S, CEILINGS_LIMIT_S = 13.0, 30.0, 90.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # that torch reads while it is imported
# Why there is no verdict, where what the cores can do may give one.
FOR_WANT_OF_CEILINGS = ("ceilings", "unknown", "no-roof")


class _Ceilings(msgspec.Struct):
    source: str = ""


class _Machine(msgspec.Struct):
    device: str | None = None
    ceilings: _Ceilings = msgspec.field(default_factory=_Ceilings)


class _Wall(msgspec.Struct):
    why_not: str = ""


class _Document(msgspec.Struct):
    """What is needed of it here."""

    wall: _Wall = msgspec.field(default_factory=_Wall)
    machine: _Machine = msgspec.field(default_factory=_Machine)


def probe(folder: Path, options: Options) -> None:
    """Run the ops of the job as fixes would run them; it prints the verdict anew.

    In a process of its own, on the job's device: what the job still holds of its memory is its own.
    """
    command = [sys.executable, "-m", "findwall", "probe", str(folder)]
    command += ["--brief"] if options.brief else []
    command += ["--json", options.json] if options.json is not None and options.json != "-" else []
    environ = {**environment(), analyst.ENDED_JOB_VARIABLE: str(os.getpid())}
    environ.pop("CUDA_VISIBLE_DEVICES")
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        environ["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    stderr = 2 if is_open(2) else subprocess.DEVNULL
    subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environ, cwd=folder, check=False
    )


def may_decide(folder: Path, options: Options) -> bool:
    """Whether ceilings are all that a verdict lacks: the job ran on this machine's cores, of which nobody
    knows yet what they can do (no table has a CPU). `findwall try` measures them itself, in its own time."""
    from findwall.machine.ceilings.numpy_cores import core_name

    if not options.verdict or LOOK in os.environ:
        return False
    try:
        seen = msgspec.json.decode((folder / DIAGNOSIS_FILE).read_bytes(), type=_Document)
    except (OSError, msgspec.MsgspecError):
        return False
    unknown = seen.machine.ceilings.source == "unknown" and seen.wall.why_not in FOR_WANT_OF_CEILINGS
    return unknown and seen.machine.device == core_name()


def judge_with_ceilings(folder: Path, options: Options) -> None:
    """Measure what these cores can do, once for all jobs to come, and read the job again with that. Ctrl-C
    leaves it: the job itself has ended."""
    say(f"measuring what these cores can do, once: about {CEILINGS_S:.0f} s (Ctrl-C leaves it out)")
    if not _measure_cores():
        say("what these cores can do is not known: `findwall ceilings` measures it")
        return
    process = start(folder, options, 1)
    if wait(process):
        say(closing_line(folder))
    else:
        say(f"no verdict; `findwall read {folder}` tries again")


def _measure_cores() -> bool:
    """On all of them, whatever the job was given."""
    environ = {name: value for name, value in environment().items() if name not in THREADS}
    command = [sys.executable, "-m", "findwall", "ceilings", "--device", "cpu"]
    command += ["--budget", f"{CEILINGS_MOST_S:.0f}"]
    nowhere = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            env=environ,
            check=False,
            timeout=CEILINGS_LIMIT_S,
        )
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return False
    return done.returncode == 0
