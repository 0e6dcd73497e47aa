"""What findwall says inside a job, on stderr alone: lines that stay, and one live line."""

from __future__ import annotations

import os
import sys

ERASE = "\r\x1b[K"

_is_shown = False  # the live line is on the screen


def is_open(descriptor: int) -> bool:
    """Whether this is a place to write to.

    A stderr that was closed, at the start or by the job, is none: what has its number now is the job's.
    """
    if descriptor == 2:
        stream = sys.__stderr__
        if stream is None or stream.closed:
            return False
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def is_watched() -> bool:
    """Whether a person may be looking: a terminal that can erase a line, with this job in front."""
    if os.environ.get("TERM", "dumb") == "dumb" or not is_open(2):
        return False
    try:
        return os.isatty(2) and os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # another session's terminal
        return False


def say(text: str) -> None:
    """One line on the job's stderr, whatever the job has done to sys.stderr."""
    erase()
    _write(f"findwall: {text}\n")


def show(text: str) -> None:
    """The live line, in place of the one before. The cursor waits at its start: what comes goes over it."""
    global _is_shown
    _is_shown = True
    _write(f"{ERASE}findwall: {text}\r")


def erase() -> None:
    """Take the live line off the screen, if it is there."""
    global _is_shown
    if _is_shown:
        _is_shown = False
        _write(ERASE)


def forget() -> None:
    """In a forked child: the line on the screen is its parent's."""
    global _is_shown
    _is_shown = False


def is_shown() -> bool:
    return _is_shown


def _write(text: str) -> None:
    if not is_open(2):
        return
    try:
        os.write(2, text.encode(errors="replace"))
    except OSError:  # a broken pipe: nobody is listening
        return
