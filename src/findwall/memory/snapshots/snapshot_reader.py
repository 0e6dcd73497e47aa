"""A snapshot of torch's allocator: `torch.cuda.memory._dump_snapshot`, plain or compressed."""

from __future__ import annotations

from pathlib import Path

from findwall.errors import InputError
from findwall.memory.snapshots.snapshot_child import decoded
from findwall.model.measured_run import Run
from findwall.model.memory_history import SNAPSHOT, SnapshotRun
from findwall.readers.allowance import Allowance
from findwall.readers.raw_file import RawFile
from findwall.readers.reader import Progress, Reader

PROTOCOLS = (2, 3, 4, 5)  # C++ writes 2, Python the later ones


def accepts(path: Path, head: bytes | None) -> bool:
    if head is None:
        return False
    try:
        source = RawFile(path)
    except InputError:
        return False
    try:
        first = source.read()[:2]
    except InputError:
        return False
    finally:
        source.close()
    return len(first) == 2 and first[0] == 0x80 and first[1] in PROTOCOLS


def _read(path: Path, _progress: Progress | None, _workers: int | None, allowance: Allowance) -> Run:
    return SnapshotRun(SNAPSHOT, (str(path),), (), memory=decoded(path, allowance.memory))


READER = Reader(SNAPSHOT, accepts, _read, alone=True)
