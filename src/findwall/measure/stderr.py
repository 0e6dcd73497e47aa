"""What findwall says inside a job: a line on stderr at a time, never on the job's stdout."""

from __future__ import annotations

import os


def say(text: str) -> None:
    """One line on the job's stderr, whatever the job has done to sys.stderr."""
    try:
        os.write(2, f"findwall: {text}\n".encode(errors="replace"))
    except OSError:  # the job has closed it: nobody is listening
        return
