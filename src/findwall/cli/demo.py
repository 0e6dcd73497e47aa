"""Show the verdict on a real trace that comes with findwall."""

from __future__ import annotations

from importlib import resources

import click

from findwall.errors import FindwallError


@click.command("demo", help=__doc__)
def command() -> None:
    _recorded()


def _recorded() -> None:
    """The bundled trace of a GPU job: what a machine without torch or a GPU can show."""
    from findwall import api
    from findwall.cli.read import show

    bundled = resources.files("findwall") / "demo" / "trace.json.gz"
    if not bundled.is_file():
        raise FindwallError("the demo trace is missing from this installation", "Install findwall again.")
    with resources.as_file(bundled) as path:
        show(api.read([str(path)]))
