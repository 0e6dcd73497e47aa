"""Find two planted walls on this machine, take them down, time it; let `try` take down the first by itself.

Without torch, a recorded trace is read.
"""

from __future__ import annotations

import difflib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import click

from findwall.errors import FindwallError
from findwall.units import format_ms

TIMED_STEPS = 60  # of each job, as planted and fixed, without findwall: seconds; chosen by hand
# Steps enough that the batches which workers have ready at first weigh little, on a busy machine too.
TRIED = ("--repeat", "3", "--steps", "60", "--budget", "150s")
FASTER = 1.2  # times: less is the machine's noise; chosen by hand


@dataclass(frozen=True)
class Planted:
    """One demo job: the wall in it, and the lines that take it down."""

    job: str
    wall: str
    cause: str
    slow: str
    fixed: str

    @property
    def source(self) -> str:
        return (resources.files("findwall") / "demo" / f"{self.job}.py").read_text()

    @property
    def repaired(self) -> str:
        """The same job without its wall."""
        if self.slow not in self.source:
            raise FindwallError(f"The demo job {self.job} is not the one that came along.", "Install again.")
        return self.source.replace(self.slow, self.fixed)


PLANTED = (
    Planted(
        "starved_loader",
        "data",
        "loader-starved",
        "        wave = [math.sin(0.01 * index * point) + math.cos(0.02 * point) for point in range(512)]\n"
        "        return torch.tensor(wave), index % 10\n",
        "        wave = torch.sin(0.01 * index * POINTS) + torch.cos(0.02 * POINTS)\n"
        "        return wave, index % 10\n",
    ),
    Planted(
        "chatty_logger",
        "overhead",
        "host-work",
        "    log(step)\n",
        "    if step % 100 == 0:\n        log(step)\n",
    ),
)

INTRODUCTION = """\
Two small training jobs, each with one slow spot planted in it. findwall is not
told where: it measures each job and names its wall. Then the wall is taken down
by hand, and the job timed before and after; last, findwall tries fixes on the
first one by itself. About three minutes.
Your own job: write `findwall run train.py` where you now write `python train.py`.
"""


@click.command("demo", help=__doc__)
def command() -> None:
    if find_spec("torch") is None:
        click.echo("torch is not installed here: this is a trace recorded on an H200.\n", err=True)
        _recorded()
        return
    _say(INTRODUCTION)
    missed = [one.job for one in PLANTED if not _find(one)]
    slower = [one.job for one in PLANTED if not _fix(one)]
    if missed:
        raise FindwallError(
            f"The planted wall was not found in: {', '.join(missed)}.",
            "Is the machine busy with something else? Try again.",
        )
    if slower:
        raise FindwallError(
            f"No faster without its planted wall: {', '.join(slower)}.",
            "Is the machine busy with something else? Try again.",
        )
    _try(PLANTED[0])
    _say(f"`{_own_name()} read` shows the last verdict with all that carries it.")
    _say(f"Now your own job: {_own_name()} run train.py")


def _say(text: str) -> None:
    click.echo(text, err=True)


def _find(one: Planted) -> bool:
    """One job under `findwall run`, as a person would start it; whether it found the wall."""
    with tempfile.TemporaryDirectory() as folder:
        script, document = Path(folder) / f"{one.job}.py", Path(folder) / "diagnosis.json"
        script.write_text(one.source)
        _say(f"$ findwall run --brief {script.name}")
        arguments = ["run", "--stop", "--brief", "--json", str(document), str(script)]
        done = subprocess.run([sys.executable, "-m", "findwall", *arguments], check=False)
        if not document.exists():
            raise FindwallError(f"The demo job {one.job} gave no verdict (exit code {done.returncode}).")
        wall = json.loads(document.read_text())["wall"]
    is_found = (wall["wall"], wall["cause"]) == (one.wall, one.cause)
    verdict = "found" if is_found else f"NOT found ({wall['wall']} / {wall['cause']})"
    _say(f"\nplanted: {one.wall} / {one.cause}: {verdict}\n")
    return is_found


def _fix(one: Planted) -> bool:
    """The job as it was and with its wall taken down, each without findwall; whether that made it faster."""
    _say(f"{one.job}.py, fixed by hand:")
    for line in _changed(one.source, one.repaired):
        click.secho(f"  {line}", fg="red" if line.startswith("-") else "green", err=True)
    before, after = _time(one.job, one.source), _time(one.job, one.repaired)
    is_faster = before > FASTER * after
    gain = f"{before / after:.1f} times faster" if is_faster else "NOT faster"
    _say(f"{one.job}: {format_ms(before)} → {format_ms(after)} per step, {gain}\n")
    return is_faster


def _try(one: Planted) -> None:
    """The job as it was under `findwall try`, unedited; it prints what it proves."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{one.job}.py"
        script.write_text(one.source)
        words = ["try", *TRIED]
        _say(f"$ findwall {' '.join(words)} {script.name}")
        done = subprocess.run([sys.executable, "-m", "findwall", *words, str(script)], check=False)
    if done.returncode:
        raise FindwallError(f"`findwall try` failed on the demo job {one.job}.", "Try again.")
    _say("")


def _changed(before: str, after: str) -> Iterator[str]:
    """The lines that differ, as diff shows them."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))


def _time(name: str, source: str) -> float:
    """Milliseconds per step, by the job's own clock."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{name}.py"
        script.write_text(source)
        done = subprocess.run(
            [sys.executable, str(script), str(TIMED_STEPS)], capture_output=True, text=True, check=False
        )
    figure = done.stdout.partition(" ")[0]
    if done.returncode != 0 or not figure:
        raise FindwallError(f"The demo job {name} failed: {done.stderr.strip()}")
    return float(figure)


def _own_name() -> str:
    """How this command is started from here."""
    own = Path(sys.argv[0])
    if own.name != "findwall" or shutil.which("findwall") == str(own):
        return "findwall"
    return str(own)


def _recorded() -> None:
    """The bundled trace of a GPU job: what a machine without torch can show."""
    from findwall import api
    from findwall.cli.read import show

    bundled = resources.files("findwall") / "demo" / "trace.json.gz"
    if not bundled.is_file():
        raise FindwallError("the demo trace is missing from this installation", "Install findwall again.")
    with resources.as_file(bundled) as path:
        show(api.read([str(path)]))
