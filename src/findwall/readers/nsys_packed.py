"""Nsight Systems exports that somebody packed (.sqlite.gz): unpacked beside, read, and gone again."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from pathlib import Path

from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.measured_run import Run
from findwall.readers.allowance import Allowance
from findwall.readers.nsys import read_export
from findwall.readers.nsys.database import MAGIC
from findwall.readers.reader import Progress, Reader

_GZIP = b"\x1f\x8b"
_AT_ONCE = 1 << 22  # bytes
_DISK_SHARE = 0.5  # of what is free: nobody's disk is filled for a look. Chosen by hand.
# Bytes that come of one packed byte, and those that any file may have: an export is a tenth as dense. Both
# chosen by hand.
_DENSEST, _FREE_BYTES = 64, 1 << 28


def read_packed(path: Path, progress: Progress | None, workers: int | None, allowance: Allowance) -> Run:
    with tempfile.TemporaryDirectory(prefix="findwall-nsys-") as folder:
        plain = Path(folder, path.stem)
        _unpack(path, plain)
        try:
            run = read_export(plain, progress, workers, allowance)
        except InputError as error:
            raise InputError(error.message.replace(str(plain), str(path)), error.hint) from error
    named = [
        rank if rank.timeline is None else replace(rank, timeline=replace(rank.timeline, path=str(path)))
        for rank in run.ranks
    ]
    return replace(run, paths=(str(path),), ranks=tuple(named))


def _unpack(path: Path, plain: Path) -> None:
    left = shutil.disk_usage(plain.parent).free * _DISK_SHARE
    believed = _FREE_BYTES + _DENSEST * path.stat().st_size
    try:
        with gzip.open(path) as packed, plain.open("wb") as file:
            while piece := packed.read(_AT_ONCE):
                left -= len(piece)
                believed -= len(piece)
                if believed < 0:
                    raise InputError(
                        f"{path} unpacks to far more than an export holds.",
                        "Unpack it, and give that file: gunzip --keep FILE.",
                    )
                if left < 0:
                    raise InputError(
                        f"{path} does not fit into {plain.parent.parent} unpacked.",
                        "Unpack it where there is room, and give that file: gunzip --keep FILE.",
                    )
                file.write(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be unpacked: {error}.", "Copy it again, or export it again."
        ) from error


def _accepts(path: Path, head: bytes | None) -> bool:
    if head is None or not head.startswith(_GZIP):
        return False
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, len(MAGIC)) == MAGIC
    except zlib.error:
        return False


READER = Reader("nsys-packed", _accepts, read_packed)
