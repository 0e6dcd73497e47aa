"""An exception of a DataLoader's worker, which torch raises again in the process that trains."""

from __future__ import annotations

import re

from findwall.agent.timing.sampler import is_library, short

_WORKER = re.compile(r"Caught \w+ in DataLoader worker process \d+\.\s+Original Traceback")
_FRAME = re.compile(r'^[ \t]*File "([^"\n]+)", line (\d+)', re.MULTILINE)


def is_of_worker(error: BaseException) -> bool:
    return _WORKER.match(str(error)) is not None


def worker_line(error: BaseException) -> str | None:
    """The innermost line of the person's own code, in the traceback that the worker wrote down."""
    own = [f"{short(file)}:{line}" for file, line in _FRAME.findall(str(error)) if not is_library(file)]
    return own[-1] if own else None
