"""Traces are kept gzipped: packed beside the verdict, in its process, so that the job waits for neither.

The job writes them plain, which holds it up least; the first verdict reads them so. What cannot be packed
stays as it is.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

PACKED_FILES = ("trace.json", "capture-*.json", "observed.json")
LEVEL = 1  # of zlib: a tenth of the size, and about a second for 100 MB on a core; chosen by hand
PIECE_BYTES = 1 << 20
GZIP = 31  # zlib's word for a gzip stream


def pack(folder: Path) -> dict[Path, Path]:
    """A packed copy of each trace of a rank, not yet in its place: somebody may be reading the plain one."""
    packed = {}
    for pattern in PACKED_FILES:
        for plain in sorted(folder.glob(pattern)):
            if plain.is_symlink() or not plain.is_file():
                continue
            copy = plain.with_name(f"partial-{os.getpid()}-{plain.name}.gz")
            try:
                _pack(plain, copy)
            except OSError:  # a full disk, or a file that just went: it stays plain
                copy.unlink(missing_ok=True)
                continue
            packed[plain] = copy
    return packed


def put_in_place(packed: dict[Path, Path]) -> None:
    """The packed copies take the places of the plain files, each whole at any moment."""
    for plain, copy in packed.items():
        try:
            copy.replace(plain.with_name(f"{plain.name}.gz"))
            plain.unlink()
        except OSError:
            continue  # both may stay: the plain one is read


def discard(packed: dict[Path, Path]) -> None:
    for copy in packed.values():
        copy.unlink(missing_ok=True)


def _pack(plain: Path, copy: Path) -> None:
    stream = zlib.compressobj(LEVEL, wbits=GZIP)
    descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with plain.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        while piece := source.read(PIECE_BYTES):
            target.write(stream.compress(piece))
        target.write(stream.flush())
