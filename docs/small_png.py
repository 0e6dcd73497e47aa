"""A screenshot with at most 256 colours: a third of the size, and text and bars look the same."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEPT_BITS = 0xF8  # of a channel: neighbours in colour become one before the most frequent are chosen
COLOURS = 256


def small(png: bytes) -> bytes:
    """The same picture, its colours in a table. Takes what Chromium writes: 8-bit RGB or RGBA."""
    pixels = _pixels(png)
    height, width, _ = pixels.shape
    coarse = (pixels & KEPT_BITS).reshape(-1, 3).astype(np.int64)
    keys = coarse[:, 0] << 16 | coarse[:, 1] << 8 | coarse[:, 2]
    distinct, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
    chosen = np.argsort(-count, kind="stable")[:COLOURS]
    table = np.array([pixels.reshape(-1, 3)[inverse == at].mean(axis=0) for at in chosen.tolist()])
    found = np.stack([distinct >> 16, distinct >> 8 & 255, distinct & 255], axis=1).astype(float)
    nearest = ((found[:, None, :] - table[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    rows = nearest[inverse].reshape(height, width).astype(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", table.round().astype(np.uint8).tobytes())]
    parts += [(b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(map(_chunk, *zip(*parts, strict=True)))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _pixels(png: bytes) -> np.ndarray:
    """Rows of red, green and blue."""
    at, packed, width, height, channels = len(SIGNATURE), b"", 0, 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", content[:10])
            channels = {2: 3, 6: 4}[colour]
        packed += content if kind == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(packed)
    size = width * channels
    before, rows = bytearray(size), []
    for row in range(height):
        start = row * (size + 1)
        before = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + size]), before, channels)
        rows.append(bytes(before))
    return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, channels)[:, :, :3]


def _unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    """One line as it was before it was made easier to compress."""
    if kind == 0:
        return line
    for at in range(len(line)):
        left = line[at - step] if at >= step else 0
        corner = above[at - step] if at >= step else 0
        guess = {1: left, 2: above[at], 3: (left + above[at]) // 2}.get(kind)
        line[at] = (line[at] + (_paeth(left, above[at], corner) if guess is None else guess)) & 255
    return line


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))
