"""What processes below this one hold of the host's memory, such as the workers of its loaders.

Pages that they share with this process are counted there. Batches that a worker has made and nobody has
taken yet lie in files without a name that only the worker holds open: no process counts them as its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

MOST_PROCESSES = 256
BLOCK_BYTES = 512  # of what stat() counts
SHARED_MEMORY = ("/dev/shm/", "/memfd:")


class ChildMemory(msgspec.Struct, frozen=True):
    """In bytes."""

    own: int  # that each has for itself
    waiting: int  # in shared memory that none but they hold


def child_memory(proc: Path = Path("/proc")) -> ChildMemory | None:
    """None where there are no such processes, or the system does not say."""
    below = list(_below(proc, "self"))[:MOST_PROCESSES]
    own = [one for child in below if (one := _own(proc / child)) is not None]
    if not own:
        return None
    mine = _held_open(proc / "self")
    files = {key: size for child in below for key, size in _held_open(proc / child).items()}
    return ChildMemory(sum(own), sum(size for key, size in files.items() if key not in mine))


def _below(proc: Path, process: str) -> Iterator[str]:
    with suppress(OSError):  # it may have ended
        for thread in (proc / process / "task").iterdir():
            with suppress(OSError):
                for child in (thread / "children").read_text(encoding="ascii").split():
                    yield child
                    yield from _below(proc, child)


def _own(process: Path) -> int | None:
    """What nobody else has, without shared memory that only it maps by now."""
    with suppress(OSError, ValueError, KeyError):
        lines = (process / "smaps_rollup").read_text(encoding="ascii", errors="replace").splitlines()[1:]
        told = {words[0]: int(words[1]) * 1024 for line in lines if len(words := line.split()) > 1}
        return max(told["Private_Dirty:"] - told.get("Pss_Shmem:", 0), 0)
    return None


def _held_open(process: Path) -> dict[tuple[int, int], int]:
    """Bytes of shared memory by file."""
    found: dict[tuple[int, int], int] = {}
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith(SHARED_MEMORY):
                    told = entry.stat()
                    found[told.st_dev, told.st_ino] = told.st_blocks * BLOCK_BYTES
    return found
