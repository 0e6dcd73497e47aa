"""Look at a job that runs already: its wall, as far as counters and Python lines show it.

PID is the process that trains, or its launcher (torchrun, a shell script): all that it started is watched.
Nothing is started or opened in the job. After 20 s the verdict is given, or what it lies between, with the
`findwall run` command that would settle it; then live, until the job ends or you press Ctrl-C.

Python lines need py-spy (pip install py-spy) and the right to look into the process. Counters
need an NVIDIA GPU of the Hopper generation or later.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from findwall.cli.around.progress import say

if TYPE_CHECKING:
    from findwall.model.diagnosis import Diagnosis
    from findwall.watch.watcher import Watcher

FIRST_VERDICT_S = 20.0
DRAWN_EVERY_S = 2.0
NICENESS = 19  # at 10, on cores that were all taken, a job's steps took 5 % longer

# Half a second of a core, before the priority is lowered: later it could take a minute on a busy machine.
LOADED_FIRST = ("findwall.examine.watch_document", "findwall.report.terminal")

Draw = Callable[["Watcher"], None]


@click.command("watch", help=__doc__)
@click.argument("pid", type=click.IntRange(min=1))
@click.option(
    "--seconds", type=click.FloatRange(min=1), metavar="N", help="Watch for N seconds, then give the verdict."
)
@click.option("--brief", "is_brief", is_flag=True, help="Show only the verdict and what is known.")
@click.option("--json", "json_target", metavar="FILE", help="Write the Diagnosis as JSON; - for stdout only.")
def command(pid: int, seconds: float | None, is_brief: bool, json_target: str | None) -> None:
    from findwall.watch.job_processes import root_process
    from findwall.watch.watcher import Watcher

    root_process(pid)  # a mistyped number is told at once
    for name in LOADED_FIRST:
        importlib.import_module(name)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)  # the job comes first
    watcher = Watcher(pid)
    said = _say_why(watcher, "")
    is_quiet = json_target == "-"
    try:
        with contextlib.suppress(KeyboardInterrupt), _screen(seconds, is_brief, is_quiet) as draw:
            _watch(watcher, seconds, draw)
    finally:
        watcher.stop()
    _say_why(watcher, said)
    found = diagnose(watcher)
    try:
        if json_target is not None:
            from findwall.report import document

            document.write(found, json_target)
    finally:  # a full disk must not cost a person the answer
        if not is_quiet:
            _show(found, is_brief)


def diagnose(watcher: Watcher) -> Diagnosis:
    """The document of what was seen until now."""
    import msgspec

    from findwall.cli.jobs.settle import settling_command
    from findwall.examine import examine

    run = watcher.run()
    assert run.watched is not None
    settle = settling_command(watcher.words, watcher.folder)
    return examine(msgspec.structs.replace(run, watched=msgspec.structs.replace(run.watched, settle=settle)))


def _watch(watcher: Watcher, seconds: float | None, draw: Draw) -> None:
    """Until the time is over or the job ends."""
    drawn = time.monotonic()
    while not watcher.has_ended and (seconds is None or watcher.seconds < seconds):
        watcher.tick()
        if time.monotonic() - drawn >= DRAWN_EVERY_S and not watcher.has_ended:
            drawn = time.monotonic()
            draw(watcher)


def _say_why(watcher: Watcher, said: str) -> str:
    """Why there are no Python lines, once."""
    if watcher.why_no_lines and watcher.why_no_lines != said:
        say(watcher.why_no_lines)
    return watcher.why_no_lines


@contextlib.contextmanager
def _screen(seconds: float | None, is_brief: bool, is_quiet: bool) -> Iterator[Draw]:
    """Who draws what is known now: live on a terminal; else it is told when the verdict changes."""
    from rich.console import Console

    console = Console()
    if is_quiet or (seconds is not None and not console.is_terminal):
        yield lambda _watcher: None
    elif not console.is_terminal:
        yield _teller(is_brief)
    else:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield _painter(live.update, console.width, is_brief)


def _teller(is_brief: bool) -> Draw:
    told: list[tuple[str | None, str | None]] = []

    def draw(watcher: Watcher) -> None:
        if watcher.seconds < FIRST_VERDICT_S:
            return
        found = diagnose(watcher)
        verdict = (found.wall.wall, found.wall.cause)
        if not told or told[-1] != verdict:
            told.append(verdict)
            _show(found, is_brief)

    return draw


def _painter(update: Callable[..., None], width: int, is_brief: bool) -> Draw:
    from rich.text import Text

    from findwall.report import terminal
    from findwall.report.texts import watched_text

    def draw(watcher: Watcher) -> None:
        found = diagnose(watcher)
        if watcher.seconds < FIRST_VERDICT_S and found.watch is not None:
            rows = [f"{label:<9}{text}" for label, text in watched_text.facts(found.watch)]
            text = "\n".join([*rows, *watched_text.table(found, width), *watched_text.lines(found.watch)])
            text += f"\nThe verdict comes after {FIRST_VERDICT_S:.0f} s. Ctrl-C ends the watch, not the job."
            update(Text(text), refresh=True)
            return
        drawn = terminal.to_text(found, min(width, terminal.WIDEST_LINE), color=True, is_brief=is_brief)
        update(Text.from_ansi(drawn), refresh=True)

    return draw


def _show(found: Diagnosis, is_brief: bool) -> None:
    from rich.console import Console

    from findwall.report import terminal

    terminal.render(found, Console(), is_brief)
