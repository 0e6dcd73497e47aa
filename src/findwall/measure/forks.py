"""A forked worker is not the job: it takes no hooks, threads or files of ours with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol


class Forking(Protocol):
    """Who must know of a fork."""

    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent: the job goes on."""

    def forked(self) -> None:
        """In the child: be gone."""


_watched = False


def watch_forks(current: Callable[[], Forking | None]) -> None:
    """Tell whoever is current then of every fork of this process. What is registered stays: only once."""
    global _watched
    if _watched:
        return
    _watched = True

    def tell(message: Callable[[Forking], None]) -> Callable[[], None]:
        def told() -> None:
            watcher = current()
            if watcher is not None:
                message(watcher)

        return told

    os.register_at_fork(
        before=tell(lambda watcher: watcher.before_fork()),
        after_in_parent=tell(lambda watcher: watcher.after_fork()),
        after_in_child=tell(lambda watcher: watcher.forked()),
    )
