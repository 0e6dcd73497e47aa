"""Cutting the text of a trace into blocks that hold whole entries, without reading it twice.

A cut is only a guess (`},{` near the end of a block): the decoder proves it, because text cut inside
a string or a nested object cannot decode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from findwall.errors import InputError
from findwall.readers.raw_file import RawFile
from findwall.readers.torch_trace.repair import BOUNDARY, UNDECODABLE, mend

# Sizes in bytes, all chosen by hand: large enough for a worker to be worth its start, small enough to hold
# many.
BLOCK_BYTES = 2 << 20
_TAIL_BYTES = 1 << 18  # the last block is small: finding where the events end costs more a byte
LONGEST_UNCUT_BYTES = 16 << 20  # text without any cut beyond this is taken as it is
_PREFIX_LIMIT_BYTES = 64 << 20  # what precedes the events is small; more than this is not a header
_KEY_PLACES_TRIED = 16  # a key that keeps turning up inside other things is not ours
_MENDABLE_BYTES = 1 << 20  # a header larger than this is not mended
_SEARCH_BYTES = 1 << 15  # the first look for a cut; each next one looks further
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_HINT = (
    "Give a file written by torch.profiler (export_chrome_trace or tensorboard_trace_handler), by `nsys "
    "export --type sqlite`, or by `ncu --csv` (as plain text: PowerShell's > writes UTF-16)."
)


class Block(msgspec.Struct):
    """A stretch of the events' text: its bytes, or where they are in the file."""

    text: bytes | None
    offset: int = 0
    length: int = 0

    def load(self, source: RawFile) -> bytes:
        return self.text if self.text is not None else source.fetch(self.offset, self.length)


class Opening(msgspec.Struct):
    """What stands before the first event."""

    header: dict[str, Any]
    offset: int  # of the first byte after `[`
    rest: bytes  # text already read after it
    bare: bool = False  # a top-level array, no object around it


def find_events(source: RawFile) -> Opening:
    """Read up to where the events begin."""
    offset, text = 0, b""
    while not text:
        more = source.read()
        if not more:
            raise InputError(f"{source.path} is empty.", _HINT)
        text = (more.removeprefix(_BYTE_ORDER_MARK) if offset == 0 else more).lstrip()
        offset += len(more) - len(text)
        if offset > _PREFIX_LIMIT_BYTES:
            raise InputError(f"{source.path} is not a trace: it is blank.", _HINT)
    if text.startswith(b"["):
        return Opening({}, offset + 1, text[1:], bare=True)
    if not text.startswith(b"{"):
        raise InputError(f"{source.path} is not a trace: it is not JSON.", _HINT)
    return _find_key(source, bytearray(text), offset)


def _find_key(source: RawFile, text: bytearray, offset: int) -> Opening:
    """The first place where a member `traceEvents` of the outermost object can begin."""
    searched, places = 0, []
    while True:
        for match in islice(_EVENTS_KEY.finditer(text, searched), _KEY_PLACES_TRIED):
            places.append(match.end())
            header = decode_header(bytes(text[: match.start()]) + b'"traceEvents":[]}')
            if header is not None:
                return Opening(header, offset + match.end(), bytes(text[match.end() :]))
        more = source.read() if len(text) < _PREFIX_LIMIT_BYTES and len(places) < _KEY_PLACES_TRIED else b""
        if not more:
            break
        searched = max(searched, len(text) - 64, *places)  # the key may lie across two reads
        text += more
    if not places:
        raise InputError(f"{source.path} holds no traceEvents.", _HINT)
    source.notes.append("What comes before the events could not be read.")
    return Opening({}, offset + places[0], bytes(text[places[0] :]))


def decode_header(text: bytes) -> dict[str, Any] | None:
    """The members around the events, if this is an object."""
    try:
        decoded = msgspec.json.decode(text)
    except UNDECODABLE:
        if len(text) > _MENDABLE_BYTES:
            return None
        try:
            decoded = msgspec.json.decode(mend(text))
        except UNDECODABLE:
            return None
    return decoded if isinstance(decoded, dict) else None


def cut(source: RawFile, opening: Opening) -> Iterator[Block]:
    """The text after the opening in blocks, in order; the last one reaches the end of the file."""
    return _cut_file(source, opening.offset) if source.seekable else _cut_stream(source, opening.rest)


def _cut_file(source: RawFile, start: int) -> Iterator[Block]:
    """Only the neighbourhood of each cut is read here; whoever decodes the block fetches it."""
    size = source.size or 0
    while size - start > _TAIL_BYTES:
        target = min(start + BLOCK_BYTES, size - _TAIL_BYTES // 2)
        end = _last_cut_before(source, start, target) or _first_cut_after(source, target, size)
        yield Block(None, start, end - start)
        start = end
    yield Block(None, start, size - start)


def _last_cut_before(source: RawFile, start: int, target: int) -> int | None:
    window = _SEARCH_BYTES
    while True:
        begin = max(start, target - window)
        place = _last_boundary(source.fetch(begin, target - begin))
        if place is not None:
            return begin + place
        if begin == start:
            return None
        window *= 8


def _first_cut_after(source: RawFile, target: int, size: int) -> int:
    """No cut within a block's length: one entry is longer than a block, or this is no list of entries."""
    limit = min(size, target + LONGEST_UNCUT_BYTES)
    while target < limit:
        match = BOUNDARY.search(source.fetch(target, BLOCK_BYTES + 64))
        if match:
            return target + match.end()
        target += BLOCK_BYTES
    return limit


def _cut_stream(source: RawFile, text: bytes) -> Iterator[Block]:
    enough = BLOCK_BYTES + _TAIL_BYTES
    while True:
        text = _read_until(source, text, enough)
        if len(text) < enough:
            break
        place = _last_boundary(text[:-_TAIL_BYTES])
        if place is None and enough < LONGEST_UNCUT_BYTES:
            enough *= 2
            continue
        place = len(text) if place is None else place
        yield Block(text[:place])
        text, enough = text[place:], BLOCK_BYTES + _TAIL_BYTES
    place = _last_boundary(text[: len(text) - _TAIL_BYTES // 2]) if len(text) > _TAIL_BYTES else None
    if place is not None:
        yield Block(text[:place])
        text = text[place:]
    yield Block(text)


def _read_until(source: RawFile, text: bytes, enough: int) -> bytes:
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
    window = _SEARCH_BYTES
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
