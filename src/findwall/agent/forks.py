"""A forked worker is not the job: it takes no hooks, threads or files of ours with it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Protocol

from findwall.apply.registry import CANNOT, REGISTRY


class Forking(Protocol):
    """Who must know of a fork."""

    def before_fork(self) -> None: ...

    def after_fork(self) -> None:
        """In the parent: the job goes on."""

    def forked(self) -> None:
        """In the child: be gone."""


_watched = False
_profiled = False


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

    def child() -> None:
        keep_child_out_of_profiler()
        tell(lambda watcher: watcher.forked())()

    REGISTRY.hold("session", "os.register_at_fork", None, past_end=CANNOT)
    os.register_at_fork(
        before=tell(lambda watcher: watcher.before_fork()),
        after_in_parent=tell(lambda watcher: watcher.after_fork()),
        after_in_child=child,
    )


def profiler_started() -> None:
    """Our trace has set up the profiler's own thread, which no forked child has."""
    global _profiled
    _profiled = True


def keep_child_out_of_profiler() -> None:
    """Have a forked child leave without the profiler's destructor, which waits there for a missing thread.

    That destructor is one of C's exit handlers. They run newest first, after Python has shut down: Python's
    own exit, its handlers and its streams are untouched. The child's newest two are now: flush what C still
    holds, then leave with the code that exit() was called with.
    """
    if not _profiled:
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):  # only where the C library tells exit handlers the code
        return
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    libc.__cxa_atexit(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)
