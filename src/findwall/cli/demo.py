"""Find a planted wall on this machine: two small jobs with torch, else a trace that comes along."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import click

from findwall.errors import FindwallError

# Each job and the wall planted in it.
PLANTED = {"starved_loader": ("data", "loader-starved"), "chatty_logger": ("overhead", "host-work")}


@click.command("demo", help=__doc__)
def command() -> None:
    if find_spec("torch") is None:
        click.echo("torch is not installed here: this is a trace recorded on an H200.\n", err=True)
        _recorded()
        return
    missed = [name for name, planted in PLANTED.items() if _run(name) != planted]
    if missed:
        raise FindwallError(
            f"The planted wall was not found in: {', '.join(missed)}.",
            "Is the machine busy with something else? Try again.",
        )


def _run(name: str) -> tuple[str | None, str | None]:
    """One job under `findwall run`, as a person would start it; the wall it found."""
    bundled = resources.files("findwall") / "demo" / f"{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        script, document = Path(folder) / f"{name}.py", Path(folder) / "diagnosis.json"
        script.write_text(bundled.read_text())
        click.echo(f"$ findwall run {script.name}", err=True)
        arguments = ["run", "--stop", "--out", str(Path(folder) / name), "--json", str(document), str(script)]
        done = subprocess.run([sys.executable, "-m", "findwall", *arguments], check=False)
        if not document.exists():
            raise FindwallError(f"The demo job {name} gave no verdict (exit code {done.returncode}).")
        wall = json.loads(document.read_text())["wall"]
    planted = PLANTED[name]
    found = (wall["wall"], wall["cause"])
    verdict = "found" if found == planted else f"NOT found ({found[0]} / {found[1]})"
    click.echo(f"\nplanted: {planted[0]} / {planted[1]}: {verdict}\n", err=True)
    return found


def _recorded() -> None:
    """The bundled trace of a GPU job: what a machine without torch can show."""
    from findwall import api
    from findwall.cli.read import show

    bundled = resources.files("findwall") / "demo" / "trace.json.gz"
    if not bundled.is_file():
        raise FindwallError("the demo trace is missing from this installation", "Install findwall again.")
    with resources.as_file(bundled) as path:
        show(api.read([str(path)]))
