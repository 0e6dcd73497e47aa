"""torch.profiler traces (Chrome trace JSON), any generation, any vendor.

The file is streamed in blocks, the blocks are decoded over the cores into columns, and the columns
become one timeline. Memory follows the columns, not the file, and of more rows than a few hundred megabytes
hold the first part of the recording is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from findwall.errors import InputError
from findwall.model.events import ReadQuality, Timeline
from findwall.model.measured_run import Rank, Run
from findwall.model.tracks import EXPORT_MEMBER
from findwall.readers.allowance import Allowance
from findwall.readers.raw_file import GZIP_MAGIC, ZSTD_MAGIC, RawFile
from findwall.readers.reader import Progress, Reader
from findwall.readers.torch_trace.assembling import Assembler
from findwall.readers.torch_trace.decode import Decoded, decode_block
from findwall.readers.torch_trace.decoding_pool import decode_all, worker_count
from findwall.readers.torch_trace.header import read_header
from findwall.readers.torch_trace.text_blocks import (
    LONGEST_UNCUT_BYTES,
    Block,
    cut,
    decode_header,
    find_events,
)

_SUFFIX_LIMIT_BYTES = 64 << 20  # what follows the events is small; more than this is not a header


def read_trace(
    path: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    allowance: Allowance | None = None,
) -> Timeline:
    """One rank from one trace file. `progress` hears (bytes done, bytes in all; 0 if not known)."""
    allowance = allowance or Allowance()
    source = RawFile(path)
    try:
        with allowance.given_back_on_refusal():
            return _read(source, progress, worker_count(workers), allowance)
    finally:
        source.close()


def _read(source: RawFile, progress: Progress | None, workers: int, allowance: Allowance) -> Timeline:
    opening = find_events(source)
    if EXPORT_MEMBER in opening.header:
        raise InputError(
            f"{source.path} was written by --export-trace: its times are replayed, not recorded.",
            "Read the trace or the run folder that it was made from.",
        )
    assembler = Assembler()
    reading = _Reading(source, decode_all(source, cut(source, opening), workers))
    done = opening.offset
    for block, decoded in reading.blocks():
        rows, memory = assembler.add(decoded.chunk)
        allowance.take(source.path, rows, len(block.text or b"") or block.length, memory)
        done = max(done, block.offset + block.length)
        if progress is not None:
            progress(done if source.seekable else source.consumed, source.size or 0)
    quality = ReadQuality(cut_off=source.cut_off or not reading.closed, notes=list(source.notes))
    members = {**opening.header, **_after(reading, opening.bare, quality)}
    if assembler.events == 0:
        raise InputError(f"{source.path} holds no whole event.", "Record it again: it is empty or cut off.")
    timeline = assembler.finish(str(source.path), read_header(members), quality)
    if len(timeline.events) == 0:
        raise InputError(
            f"{source.path} holds {quality.events} entries, but none that lasts and can be read.",
            "Is it a torch.profiler trace?",
        )
    if quality.cut_off:
        quality.notes.insert(
            0, f"The file is cut off: {quality.events} whole events were read, the rest is lost."
        )
    return timeline


class _Reading:
    """Goes through the decoded blocks in order and joins what a wrong cut has split."""

    def __init__(self, source: RawFile, decoded: Iterator[tuple[Block, Decoded]]) -> None:
        self.source, self.decoded = source, decoded
        self.closed = False  # the array of events has ended; the rest is the suffix
        self.suffix = bytearray()
        self._carried = bytearray()  # an entry that has begun and not ended yet
        self._enough = 0

    def blocks(self) -> Iterator[tuple[Block, Decoded]]:
        for block, decoded in self.decoded:
            if self.closed:
                self.suffix += block.load(self.source)
                if len(self.suffix) > _SUFFIX_LIMIT_BYTES:
                    return
            elif self._carried:
                # The block before ended inside an entry: this one began there too.
                self._carried += block.load(self.source)
                if len(self._carried) >= self._enough:
                    yield block, self._settle(bytes(self._carried))
            else:
                if decoded.closed_at is not None or decoded.cut_at is not None:
                    self._note_end(block.load(self.source), decoded)
                yield block, decoded
        if self._carried and not self.closed:
            yield Block(b""), self._settle(bytes(self._carried))

    def _settle(self, text: bytes) -> Decoded:
        decoded = decode_block(text)
        self._note_end(text, decoded)
        return decoded

    def _note_end(self, text: bytes, decoded: Decoded) -> None:
        """What is left of a block that did not end where it was cut."""
        self._carried.clear()
        if decoded.closed_at is not None:
            self.closed, self.suffix = True, bytearray(text[decoded.closed_at + 1 :])
        elif decoded.cut_at is not None:
            self._carried += text[decoded.cut_at :]
            self._enough = 2 * len(self._carried)  # trying at every block would take quadratic time
            if len(self._carried) > LONGEST_UNCUT_BYTES:
                self._carried.clear()
                reasons = decoded.chunk.damaged
                reasons["without an end"] = reasons.get("without an end", 0) + 1
                decoded.chunk.events += 1


def _after(reading: _Reading, bare: bool, quality: ReadQuality) -> dict[str, Any]:
    """The members that follow the events."""
    if bare or not reading.closed:
        return {}
    members = decode_header(b'{"traceEvents":[]' + bytes(reading.suffix))
    if members is None:
        quality.notes.append("What follows the events could not be read.")
        quality.cut_off = quality.cut_off or not reading.suffix.rstrip().endswith(b"}")
    return members or {}


def _accepts(path: Path, head: bytes | None) -> bool:
    """JSON, or something compressed; a file that may not be looked into is worth naming."""
    if head is None:
        return not os.path.isdir(path)  # noqa: PTH112 - a Path's own question may raise
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return head.startswith((b"{", b"[", GZIP_MAGIC, ZSTD_MAGIC))


def _one_rank(path: Path, progress: Progress | None, workers: int | None, allowance: Allowance) -> Run:
    timeline = read_trace(path, progress, workers, allowance)
    return Run("torch-trace", (str(path),), (Rank(timeline.header.rank or 0, timeline),))


READER = Reader("torch-trace", _accepts, _one_rank, streams=True)
