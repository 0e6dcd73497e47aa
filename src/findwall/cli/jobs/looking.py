"""One traced run of a job under `findwall run`, for its Diagnosis and for what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from findwall.agent.ending.after_the_job import CEILINGS_LIMIT_S, CEILINGS_MOST_S, THREADS
from findwall.errors import FindwallError
from findwall.model.arms import DELETES_FILE, LOOK, READ_BACK_FILE, WRITES_FILE
from findwall.model.diagnosis import Diagnosis
from findwall.model.switches.program_options import OPTIONS_FILE, Option
from findwall.trial.arms_in_turn import last_words
from findwall.trial.process_groups import LOOK_S, Stop, end, overseen, own_folder, same_input

LIMIT_S = 600.0  # what one look at the job may take
NAMED = 3  # paths in a sentence
OWN = "findwall: "


def look_at(
    command: Sequence[str],
    folder: Path,
    document: Path,
    cwd: str | None,
    env: Mapping[str, str],
    left_s: float = LIMIT_S,
) -> Diagnosis:
    """Run it until it has written its document. `folder`: all of it is this look's own. `cwd`: it runs in a
    new folder in there. Ctrl-C ends it, and all that it started."""
    limit_s = min(left_s, LIMIT_S)
    with own_folder(cwd) as own:
        code = _run(command, folder, own, env, limit_s)
    if code is None and limit_s < LIMIT_S:
        raise FindwallError(
            f"The {limit_s:.0f} s that were left were too short for another look at the job.",
            "--budget gives it more.",
        )
    if code is None:
        raise FindwallError(
            f"The job gave no diagnosis in {limit_s:.0f} s.",
            "Run `findwall run` on it first; it shows how far it comes.",
        )
    if not document.exists():
        last = _words((folder / "stderr").read_text(errors="replace"))
        raise FindwallError(
            f"The job gave no diagnosis (exit code {code}): {last[:300]}",
            "Run `findwall run` on it first; it shows what is wrong.",
        )
    return msgspec.json.decode(document.read_bytes(), type=Diagnosis)


def lacks_ceilings(seen: Diagnosis) -> bool:
    """A job that ran on this machine's cores, of which nobody knows yet what they can do: no table has a
    CPU."""
    from findwall.machine.ceilings.numpy_cores import core_name

    machine = seen.machine
    return machine.ceilings.get("source") == "unknown" and machine.device == core_name()


def measure_cores(left_s: float) -> bool:
    """Measure what they can do, in the time that is left, and keep it for all later looks: whether that was
    done. In a process of its own, which Ctrl-C ends, on all cores, whatever the job is given."""
    words = ("ceilings", "--device", "cpu", "--budget", f"{CEILINGS_MOST_S:.0f}")
    with tempfile.TemporaryDirectory(prefix="findwall-try-") as name:
        command, env = (sys.executable, "-m", "findwall", *words), dict.fromkeys(THREADS, "")
        return _run(command, Path(name), None, env, min(CEILINGS_LIMIT_S, left_s)) == 0


def _words(stderr: str) -> str:
    """Why it failed: what findwall itself says of it, else the job's last words."""
    own = [line.removeprefix(OWN) for line in stderr.splitlines() if line.startswith(OWN)]
    return own[-1] if own else last_words(stderr)


def _run(
    command: Sequence[str], folder: Path, cwd: str | None, env: Mapping[str, str], limit_s: float
) -> int | None:
    """`env`: on top of this process's; what is empty there is taken out."""
    whole = {**os.environ, **env, LOOK: str(folder)}
    whole = {name: value for name, value in whole.items() if value or name not in env}
    with Stop() as stop, overseen(LOOK, str(folder), str(folder), cwd):
        with open(folder / "stderr", "wb") as stderr, same_input() as stdin:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=whole,
                cwd=cwd,
                start_new_session=True,
            )
        until = time.monotonic() + limit_s
        try:
            while process.poll() is None and not stop.asked and time.monotonic() < until:
                time.sleep(LOOK_S)
            code = process.poll()
        finally:
            end(process, LOOK, str(folder))
    if stop.asked:
        raise KeyboardInterrupt
    return code


def written(run: Path) -> list[str]:
    """What the job was seen to write."""
    return _paths(run / "rank0" / WRITES_FILE)


def deleted(run: Path | None) -> list[str]:
    """What was there before the job, and was deleted by it."""
    return _paths(run / "rank0" / DELETES_FILE) if run is not None else []


def read_back(run: Path | None) -> list[str]:
    """What the job read, and then wrote: a process that follows reads that."""
    return _paths(run / "rank0" / READ_BACK_FILE) if run is not None else []


def declared(run: Path | None) -> list[Option]:
    """The options that the job's program takes."""
    if run is None:
        return []
    try:
        return msgspec.json.decode((run / "rank0" / OPTIONS_FILE).read_bytes(), type=list[Option])
    except (OSError, msgspec.MsgspecError):
        return []


def _paths(file: Path) -> list[str]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []


def warn(
    paths: Sequence[str],
    cwd: str | None,
    say: Callable[[str], None],
    gone: Sequence[str] = (),
    passed_on: Sequence[str] = (),
) -> None:
    """Before trials: what each of them does to a person's files. `cwd`: the folder in which each has its own
    already, if any; `gone`: what they delete; `passed_on`: what one writes and the next reads."""
    kept = Path(cwd).absolute() if cwd is not None else None
    paths, gone, passed_on = (
        [path for path in many if kept is None or not Path(path).is_relative_to(kept)]
        for many in (paths, gone, passed_on)
    )
    # A folder is told by what is written in it.
    paths = [path for path in paths if not any(other.startswith(path + os.sep) for other in paths)]
    paths = [path for path in paths if path not in passed_on]
    done = [f"reads {_named(passed_on)} as the one before it left it"] if passed_on else []
    done += [f"deletes {_named(gone)}"] if gone else []
    done += [f"writes {_named(paths)} again"] if paths else []
    if not done:
        return
    told = f"each trial {', '.join(done[:-1])}{' and ' if done[1:] else ''}{done[-1]}"
    if kept is None:
        say(f"{told}: --sandbox-dir DIR runs each in a folder of its own")
    else:
        say(f"{told}, outside of {cwd}: the job names the place itself")


def _named(paths: Sequence[str]) -> str:
    here = Path.cwd()
    names = [str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path for path in paths]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
