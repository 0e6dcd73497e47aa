"""One block of text to one chunk of columns: the fast way if the block is clean, else the careful one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from findwall.readers.columns import Chunk, build_chunk
from findwall.readers.entries import MANY_DECODER, SPLIT_DECODER
from findwall.readers.repair import BARE_NUMBER, UNDECODABLE, Salvage, read_each, walk

_SEPARATORS = b", \t\r\n"


@dataclass(slots=True)
class Decoded:
    """A chunk, and where its block turned out to end if not at its end."""

    chunk: Chunk
    closed_at: int | None = None
    cut_at: int | None = None


def decode_block(text: bytes) -> Decoded:
    """Read a block that should hold whole entries, separated by commas."""
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
    """Try what is cheap first: bare numbers put out of the way, then wrong types, then broken text."""
    clean, numbers = BARE_NUMBER.subn(rb"\1null", text)
    if numbers:
        try:
            return Salvage(MANY_DECODER.decode(_as_array(clean)), repaired=numbers)
        except UNDECODABLE:
            pass
    try:
        found = read_each(SPLIT_DECODER.decode(_as_array(clean)))
    except UNDECODABLE:
        return walk(text)
    found.repaired += numbers
    return found


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
