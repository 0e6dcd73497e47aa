"""torch.profiler traces (Chrome trace JSON), any generation, any vendor.

The file is streamed in blocks, the blocks are decoded over the cores into columns, and the columns
become one timeline. Memory follows the columns, not the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from findwall.errors import InputError
from findwall.model.events import ReadQuality, Timeline
from findwall.readers.assemble import Assembler
from findwall.readers.blocks import Block, cut, decode_header, find_events
from findwall.readers.decode import Decoded, decode_block
from findwall.readers.header import read_header
from findwall.readers.pool import decode_all, worker_count
from findwall.readers.source import Source

Progress = Callable[[int, int], None]
_SUFFIX_LIMIT = 64 << 20  # what follows the events is small; more than this is not a header


def read_trace(path: Path, progress: Progress | None = None, workers: int | None = None) -> Timeline:
    """One rank from one trace file. `progress` hears (bytes done, bytes in all; 0 if not known)."""
    source = Source(path)
    try:
        return _read(source, progress, worker_count(workers))
    finally:
        source.close()


def _read(source: Source, progress: Progress | None, workers: int) -> Timeline:
    opening = find_events(source)
    assembler = Assembler()
    reading = _Reading(source, decode_all(source, cut(source, opening), workers))
    done = opening.offset
    for block, decoded in reading.blocks():
        assembler.add(decoded.chunk)
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


@dataclass(slots=True)
class _Reading:
    """Goes through the decoded blocks in order and joins what a wrong cut has split."""

    source: Source
    decoded: Iterator[tuple[Block, Decoded]]
    closed: bool = False
    suffix: bytes = b""

    def blocks(self) -> Iterator[tuple[Block, Decoded]]:
        carried = b""
        for block, decoded in self.decoded:
            if self.closed:
                if len(self.suffix) < _SUFFIX_LIMIT:
                    self.suffix += block.load(self.source)
                continue
            if carried:
                # The block before ended inside an entry: this one began there too.
                text = carried + block.load(self.source)
                carried, decoded = b"", decode_block(text)
            elif decoded.closed_at is None and decoded.cut_at is None:
                yield block, decoded
                continue
            else:
                text = block.load(self.source)
            if decoded.closed_at is not None:
                self.closed, self.suffix = True, text[decoded.closed_at + 1 :]
            elif decoded.cut_at is not None:
                carried = text[decoded.cut_at :]
            yield block, decoded


def _after(reading: _Reading, bare: bool, quality: ReadQuality) -> dict[str, Any]:
    """The members that follow the events."""
    if bare or not reading.closed:
        return {}
    members = decode_header(b'{"traceEvents":[]' + reading.suffix)
    if members is None:
        quality.notes.append("What follows the events could not be read.")
        quality.cut_off = quality.cut_off or not reading.suffix.rstrip().endswith(b"}")
    return members or {}
