"""What findwall says inside a job: a line on stderr at a time, never on the job's stdout."""

from __future__ import annotations

import os
import sys


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


def say(text: str) -> None:
    """One line on the job's stderr, whatever the job has done to sys.stderr."""
    if not is_open(2):
        return
    try:
        os.write(2, f"findwall: {text}\n".encode(errors="replace"))
    except OSError:  # a broken pipe: nobody is listening
        return
