"""Cutting the text of a trace into blocks that hold whole entries, without reading it twice.

A cut is only a guess (`},{` near the end of a block): the decoder proves it, because text cut inside
a string or a nested object cannot decode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from findwall.errors import InputError
from findwall.readers.repair import BOUNDARY, UNDECODABLE, mend
from findwall.readers.source import Source

BLOCK = 2 << 20
_TAIL = 1 << 18  # the last block is small: finding where the events end costs more a byte
_LONGEST = 64 << 20  # text without any cut beyond this is taken as it is
_PREFIX_LIMIT = 256 << 20
_WINDOW = 1 << 15
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_HINT = "Give a file written by torch.profiler (export_chrome_trace or tensorboard_trace_handler)."


@dataclass(slots=True)
class Block:
    """A stretch of the events' text: its bytes, or where they are in the file."""

    text: bytes | None
    offset: int = 0
    length: int = 0

    def load(self, source: Source) -> bytes:
        return self.text if self.text is not None else source.fetch(self.offset, self.length)


@dataclass(slots=True)
class Opening:
    """What stands before the first event."""

    header: dict[str, Any]
    offset: int  # of the first byte after `[`
    rest: bytes  # text already read after it
    bare: bool = False  # a top-level array, no object around it


def find_events(source: Source) -> Opening:
    """Read up to where the events begin."""
    text = b""
    while not text.removeprefix(_BYTE_ORDER_MARK).lstrip():
        more = source.read()
        if not more:
            raise InputError(f"{source.path} is empty.", _HINT)
        text += more
    skipped = len(text) - len(text.removeprefix(_BYTE_ORDER_MARK).lstrip())
    first = text[skipped : skipped + 1]
    if first == b"[":
        return Opening({}, skipped + 1, text[skipped + 1 :], bare=True)
    if first != b"{":
        raise InputError(f"{source.path} is not a trace: it is not JSON.", _HINT)
    return _find_key(source, text)


def _find_key(source: Source, text: bytes) -> Opening:
    searched, first_match = 0, None
    while True:
        for match in _EVENTS_KEY.finditer(text, searched):
            first_match = first_match or match.span()
            header = decode_header(text[: match.start()] + b'"traceEvents":[]}')
            if header is not None:
                return Opening(header, match.end(), text[match.end() :])
        more = source.read() if len(text) < _PREFIX_LIMIT else b""
        if not more:
            break
        searched = max(0, len(text) - 64)  # the key may lie across two reads
        text += more
    if first_match is None:
        raise InputError(f"{source.path} holds no traceEvents.", _HINT)
    source.notes.append("What stands before the events could not be read.")
    return Opening({}, first_match[1], text[first_match[1] :])


def decode_header(text: bytes) -> dict[str, Any] | None:
    """The members around the events, if this is an object."""
    for attempt in (text, mend(text)) if len(text) < 1 << 20 else (text,):
        try:
            decoded = msgspec.json.decode(attempt)
        except UNDECODABLE:
            continue
        if isinstance(decoded, dict):
            return decoded
    return None


def cut(source: Source, opening: Opening) -> Iterator[Block]:
    """The text after the opening in blocks, in order; the last one reaches the end of the file."""
    return _cut_file(source, opening.offset) if source.seekable else _cut_stream(source, opening.rest)


def _cut_file(source: Source, start: int) -> Iterator[Block]:
    """Only the neighbourhood of each cut is read here; whoever decodes the block fetches it."""
    size = source.size or 0
    while size - start > _TAIL:
        target = min(start + BLOCK, size - _TAIL // 2)
        end = _last_cut_before(source, start, target) or _first_cut_after(source, target, size)
        if end is None:
            break
        yield Block(None, start, end - start)
        start = end
    yield Block(None, start, size - start)


def _last_cut_before(source: Source, start: int, target: int) -> int | None:
    window = _WINDOW
    while True:
        begin = max(start, target - window)
        place = _last_boundary(source.fetch(begin, target - begin))
        if place is not None:
            return begin + place
        if begin == start:
            return None
        window *= 8


def _first_cut_after(source: Source, target: int, size: int) -> int | None:
    """No cut within a block's length: one entry is longer than a block, or this is no list of entries."""
    while target < size:
        text = source.fetch(target, BLOCK + 64)
        match = BOUNDARY.search(text)
        if match:
            return target + match.end()
        target += BLOCK
    return None


def _cut_stream(source: Source, text: bytes) -> Iterator[Block]:
    enough = BLOCK + _TAIL
    while True:
        text = _read_until(source, text, enough)
        if len(text) < enough:
            break
        place = _last_boundary(text[:-_TAIL])
        if place is None and enough < _LONGEST:
            enough *= 2
            continue
        place = len(text) if place is None else place
        yield Block(text[:place])
        text, enough = text[place:], BLOCK + _TAIL
    place = _last_boundary(text[: len(text) - _TAIL // 2]) if len(text) > _TAIL else None
    if place is not None:
        yield Block(text[:place])
        text = text[place:]
    yield Block(text)


def _read_until(source: Source, text: bytes, enough: int) -> bytes:
    parts, length = [text], len(text)
    while length < enough:
        more = source.read()
        if not more:
            break
        parts.append(more)
        length += len(more)
    return b"".join(parts)


def _last_boundary(text: bytes) -> int | None:
    """Where the last entry that begins in this text begins."""
    window = _WINDOW
    while True:
        begin = max(0, len(text) - window)
        place = None
        for match in BOUNDARY.finditer(text, begin):
            place = match.end()
        if place is not None and place < len(text):
            return place
        if begin == 0:
            return None
        window *= 8
