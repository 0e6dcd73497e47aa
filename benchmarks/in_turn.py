"""Runs a job's script once no other one that was started so is at work.

    python benchmarks/in_turn.py SCRIPT [ARGUMENTS ...]

What a benchmark measures needs the device for itself, loading torch does not: started side by side, the next
job loads while one is measured.
"""

from __future__ import annotations

import fcntl
import runpy
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = Path(tempfile.gettempdir()) / "findwall-benchmarks-in-turn"


@contextmanager
def turn() -> Iterator[None]:
    """Nobody else has it meanwhile."""
    with FILE.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    import torch  # noqa: F401 - what takes long and disturbs nobody

    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    with turn():
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
