"""The verdict, worked out in another process: it sees no GPU, is no rank of the job, and is nice to it.

Run as a module it waits for the ranks' files, then calls `findwall read` on the run folder.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from findwall.agent.ending.closing import closing_line
from findwall.agent.ending.helper_process import Helper, Process, send_out
from findwall.agent.ending.runfolder import RunFolder
from findwall.agent.ending.stderr import is_open, say
from findwall.agent.ending.storage import discard, pack, put_in_place
from findwall.agent.membership import DISTRIBUTED_PREFIXES, DISTRIBUTED_VARIABLES, Membership
from findwall.agent.options import Options
from findwall.agent.rank_messages import LOOK_S
from findwall.model.measurement import (
    DIAGNOSIS_FILE,
    MEASUREMENT_FILE,
    REPORT_FILE,
    RUN_FILE,
    SUMMARY_FILE,
    Measurement,
    RunInfo,
)

COMMAND_VARIABLE = "FINDWALL_VERDICT_COMMAND"  # instead of `python -m findwall read`
# Which job has just ended that still holds memory of the device: its process takes no time of it.
ENDED_JOB_VARIABLE = "FINDWALL_ENDED_JOB"
RANKS_WAIT_S = 30.0  # for the files of the other ranks
JOB_END_WAIT_S = 300.0
NICENESS = 10


_helper: Helper | None = None


def prepare(options: Options, rank: Membership) -> None:
    """Before the job's first line: whoever starts the verdict later is no child of the job."""
    global _helper
    if options.verdict and (rank.speaks or rank.world_size > 1) and _helper is None:
        _helper = send_out()


def forked() -> None:
    """In a child of the job."""
    global _helper
    if _helper is not None:
        _helper.forget()
        _helper = None


class Analyst:
    """The verdict on this job, begun once, by the rank that speaks."""

    def __init__(self, options: Options, rank: Membership) -> None:
        self._options, self._rank = options, rank
        self._folder = Path()
        self._process: Process | None = None

    @property
    def begun(self) -> bool:
        return self._process is not None

    @property
    def is_there(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def is_at_work(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self, folder: RunFolder | None) -> None:
        if self._options.verdict and self._rank.speaks and folder is not None and not self.begun:
            self._folder = folder.path
            self._process = start(folder.path, self._options, self._rank.world_size)

    def end(self, quietly: bool = False) -> None:
        """Wait for what was begun; it prints itself. `quietly`: another one follows."""
        process, self._process = self._process, None
        if process is None:
            return
        done = wait(process)
        if quietly:
            return
        if not done:
            say(f"no verdict; `findwall read {self._folder}` tries again")
            return
        say(closing_line(self._folder))
        if self._options.json == "-":
            _put_out(self._folder / DIAGNOSIS_FILE)


def _put_out(document: Path) -> None:
    """On the job's stdout, if that is still there."""
    try:
        sys.stdout.write(document.read_text())
    except (OSError, ValueError, AttributeError):  # closed, or replaced by something else
        say(f"stdout is closed: the document is {document}")


def start(folder: Path, options: Options, world_size: int) -> Process:
    """Begin. What the verdict prints goes to the job's stderr."""
    command = [sys.executable, "-m", "findwall.agent.ending.analyst", str(folder), str(world_size)]
    if options.json is not None and options.json != "-":
        command.append(str(Path(options.json).absolute()))
    return _start(command, folder, 2, 2)


def _start(command: list[str], folder: Path, stdout: int, stderr: int) -> Process:
    stdout, stderr = (file if is_open(file) else subprocess.DEVNULL for file in (stdout, stderr))
    # In the run's folder: the job's may hold modules that shadow others.
    asked = None if _helper is None else _helper.ask(command, environment(), folder, stdout, stderr)
    if asked is not None:
        return asked
    # A loop that is measured from inside its script, or a job that has closed our line: a child then.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=environment(),
        cwd=folder,
        start_new_session=True,  # Ctrl-C is the job's
    )


def environment() -> dict[str, str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in DISTRIBUTED_VARIABLES and not name.startswith(DISTRIBUTED_PREFIXES)
    }
    environ["CUDA_VISIBLE_DEVICES"] = ""
    environ.pop("CUDA_INJECTION64_PATH", None)
    # findwall must be found where this process found it, also when that is not an installed place.
    own = str(Path(__file__).resolve().parents[3])
    # Absolute, because the verdict is worked out in another folder.
    given = [
        str(Path(entry).absolute()) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    ]
    if "site-packages" not in own and "dist-packages" not in own:
        given.insert(0, own)
    if given:
        environ["PYTHONPATH"] = os.pathsep.join(given)
    return environ


def wait(process: Process, timeout: float = JOB_END_WAIT_S) -> bool:
    """Wait for the verdict at the job's end. A second Ctrl-C ends that too."""
    try:
        return process.wait(timeout) == 0
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        return False


def write_late(folder: Path, options: Options) -> None:
    """The document a person asked for, of a job that left before any verdict was begun.

    Nothing is printed beside it (the job's own last words are what counts), and no rank is waited for: after
    a failure they may never come. A Ctrl-C ends it.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        process = _start(_read_command(folder), folder, nowhere, nowhere)
    finally:
        os.close(nowhere)
    document = folder / DIAGNOSIS_FILE
    if not wait(process) or not document.is_file():
        say(f"no verdict; `findwall read {folder}` says why")
    elif options.json == "-":
        _put_out(document)
    elif options.json is not None:
        shutil.copyfile(document, options.json)


def say_failure(folder: Path, rank: int) -> Process:
    """Begin to work out what would have fitted, of what the job that dies has yet to write."""
    command = [sys.executable, "-m", "findwall.examine.say_failure", str(folder), str(rank)]
    return _start(command, folder, 2, 2)


def summarise(folder: RunFolder) -> None:
    """Begin to reduce this rank's trace to what the others need of it. Nobody waits for it but a verdict."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        _start(_summary_command(folder.path, folder.rank.rank), folder.rank_path, nowhere, nowhere)
    finally:
        os.close(nowhere)


def _summary_command(folder: Path, rank: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "findwall.ranks.reduced.rank_in_job",
        str(folder / f"rank{rank}"),
        str(rank),
    ]


def missing_ranks(folder: Path, ranks: Iterable[int]) -> list[int]:
    """Those who have not told all yet: their measurement, and what their trace comes to."""
    return [rank for rank in ranks if not _has_told(folder / f"rank{rank}")]


def _has_told(folder: Path) -> bool:
    try:
        measured = msgspec.json.decode((folder / MEASUREMENT_FILE).read_bytes(), type=Measurement)
    except (OSError, msgspec.MsgspecError):
        return False
    return measured.final and (measured.trace.file is None or (folder / SUMMARY_FILE).exists())


def _wait_for_ranks(folder: Path, world_size: int) -> None:
    """This rank's own summary is made meanwhile."""
    until = time.monotonic() + RANKS_WAIT_S
    own = subprocess.Popen(_summary_command(folder, 0))
    missing = missing_ranks(folder, range(world_size))
    while missing and time.monotonic() < until:
        time.sleep(LOOK_S)
        missing = missing_ranks(folder, missing)
    if own.poll() is None and 0 in missing:
        own.kill()
    own.wait()


def _read_command(folder: Path) -> list[str]:
    given = os.environ.get(COMMAND_VARIABLE)
    base = shlex.split(given) if given else [sys.executable, "-m", "findwall", "read"]
    page = [] if given else ["--page", str(folder / REPORT_FILE)]
    return [*base, str(folder), "--json", str(folder / DIAGNOSIS_FILE), *page, *_view(folder)]


def _view(folder: Path) -> list[str]:
    """How the job's owner wants to see it."""
    try:
        options = msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=RunInfo).options
    except (OSError, msgspec.MsgspecError):
        return []
    top = options.get("top")
    return [*(["--brief"] if options.get("brief") else []), *(["--top", str(top)] if top else [])]


def main(arguments: list[str]) -> Any:
    folder, world_size = Path(arguments[0]), int(arguments[1])
    os.nice(NICENESS)
    if world_size > 1:
        _wait_for_ranks(folder, world_size)
    with ThreadPoolExecutor(1) as beside:
        packing = beside.submit(pack, folder / "rank0")
        outcome = subprocess.run(_read_command(folder), check=False, umask=0o077).returncode
    (put_in_place if outcome == 0 else discard)(packing.result())
    if outcome == 0 and len(arguments) > 2 and (folder / DIAGNOSIS_FILE).is_file():
        shutil.copyfile(folder / DIAGNOSIS_FILE, arguments[2])
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
