"""One block of text to one chunk of columns: the fast way if the block is clean, else the careful one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from findwall.readers.torch_trace.columns import Chunk, build_chunk
from findwall.readers.torch_trace.entries import MANY_DECODER, SPLIT_DECODER
from findwall.readers.torch_trace.repair import BARE_NUMBER, TRAILING, UNDECODABLE, Salvage, read_each, walk

_SEPARATORS = b", \t\r\n"


class Decoded(msgspec.Struct):
    """A chunk, and where its block turned out to end if not at its end."""

    chunk: Chunk
    closed_at: int | None = None
    cut_at: int | None = None


def decode_block(text: bytes) -> Decoded:
    """Read a block that should hold whole entries, separated by commas; the last one also what follows."""
    with _collector_paused():
        try:
            return Decoded(build_chunk(MANY_DECODER.decode(_as_array(text))))
        except UNDECODABLE:
            found = _salvage(text)
        chunk = build_chunk(found.entries)
    chunk.repaired += found.repaired
    for reason, count in found.damaged.items():
        chunk.damaged[reason] = chunk.damaged.get(reason, 0) + count
        chunk.events += count
    return Decoded(chunk, found.closed_at, found.cut_at)


def _as_array(text: bytes) -> bytes:
    """The block as a JSON array, without the comma it may end in."""
    tail = text[-64:]
    end = len(text) - len(tail) + len(tail.rstrip(_SEPARATORS))
    return b"".join((b"[", memoryview(text)[:end], b"]"))


def _salvage(text: bytes) -> Salvage:
    """Try what is cheap first: the end of the array, bare numbers, then wrong types, then broken text."""
    clean, numbers = BARE_NUMBER.subn(rb"\1null", text)
    end = _array_end(clean)
    closed_at = None if end is None else len(text) - len(clean) + end
    if end is not None and clean[end:] != text[closed_at:]:
        return walk(text)  # bare numbers after the events too: the places do not correspond
    for attempt in (_all_at_once, _one_by_one):
        try:
            found = attempt(_as_array(clean[:end]))
        except UNDECODABLE:
            continue
        found.repaired += numbers
        found.closed_at = closed_at
        return found
    return walk(text)


def _all_at_once(array: bytes) -> Salvage:
    return Salvage(MANY_DECODER.decode(array))


def _one_by_one(array: bytes) -> Salvage:
    return read_each(SPLIT_DECODER.decode(array))


def _array_end(text: bytes) -> int | None:
    """Where the array of events ends, if this text is whole up to there and the array ends in it."""
    try:
        SPLIT_DECODER.decode(b"[" + text)
    except UNDECODABLE as error:
        trailing = TRAILING.search(str(error))
        # The error counts from the bracket put in front, and names the first byte after the array.
        return text.rindex(b"]", 0, int(trailing[1]) - 1) if trailing else None
    return text.rindex(b"]")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """The entries form no cycles; scanning them for some costs a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
