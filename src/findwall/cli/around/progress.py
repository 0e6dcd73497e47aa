"""What findwall says on standard error beside its answer: lines, and a bar for what takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from findwall.report.printable_names import clean

Progress = Callable[[int, int], None]  # bytes done, bytes in all

QUIET_S = 1.0  # what is done by then needs no bar


def say(text: str) -> None:
    click.echo(f"findwall: {clean(text)}", err=True)


@contextmanager
def progress_bar(label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress | None]:
    """A callback that draws a bar once a second has passed; None where nobody would see it."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        yield _callback(label, stack, clock)


def _callback(label: str, stack: ExitStack, clock: Callable[[], float]) -> Progress:
    began = clock()
    bar: list[Progress] = []

    def update(done: int, total: int) -> None:
        if not bar and clock() - began >= QUIET_S:
            bar.append(_start(label, stack))
        if bar:
            bar[0](done, total)

    return update


def _start(label: str, stack: ExitStack) -> Progress:
    from rich import progress
    from rich.console import Console

    drawn = stack.enter_context(
        progress.Progress(
            progress.TextColumn(label),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,  # a thread of its own would keep the readers from forking workers
        )
    )
    task = drawn.add_task(label, total=None)
    return lambda done, total: drawn.update(task, completed=done, total=total or None, refresh=True)
