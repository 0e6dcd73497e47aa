"""Lists of frames as a pickle writes them, and the stacks they are: the same bytes are the same stack.

What was seen before is found for thousands together: by a hash, and then every byte is compared.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.memory.snapshots.pickled_values import Data, Memo, Stack, Stacks
from findwall.model.memory_history import I32, I64, U64

UNKNOWN = -2  # no stack that was seen before
MOST_WORDS = 256  # of eight bytes: four hundred frames and more; longer lists are looked up singly
MOST_BODIES = 1 << 16  # that are compared together; those beyond are looked up singly
_GETS = re.compile(rb"(?:h.|j....)*", re.DOTALL)
_EACH_GET = re.compile(rb"h.|j....", re.DOTALL)
_FACTORS = np.cumprod(np.full(MOST_WORDS, 0x9E37_79B9_7F4A_7C15, np.uint64))
_NOTHING = np.zeros(0, np.int64)


class StackBodies:
    def __init__(self, data: Data, memo: Memo, stacks: Stacks) -> None:
        self._data, self._memo, self._stacks = data, memo, stacks
        self._named: dict[bytes, Stack] = {b"": stacks[()]}  # by the references that make them
        self._hashes = np.zeros(0, np.uint64)  # of those below, in order
        self._start, self._length, self._stack = _NOTHING, _NOTHING, _NOTHING
        self._new: list[tuple[int, int, int]] = []

    def number(self, start: int, end: int) -> Stack | None:
        """The stack of these bytes; None where they are more than references into the memo."""
        written = bytes(self._data[start:end])
        found = self._named.get(written)
        if found is None and _GETS.fullmatch(written):
            frames = tuple(
                self._memo.get(int.from_bytes(one[1:], "little")) for one in _EACH_GET.findall(written)
            )
            found = self._named[written] = self._stacks.number_of(frames)
            if end - start <= 8 * MOST_WORDS and len(self._named) <= MOST_BODIES:
                self._new.append((start, end - start, found))
        return found

    def numbers(self, start: I64, end: I64) -> I32:
        """The stacks of many; UNKNOWN where the bytes were not seen before."""
        self._settle()
        length = end - start
        found = np.where(length == 0, 0, UNKNOWN).astype(np.int32)
        words = (length + 7) >> 3
        words[words > MOST_WORDS] = 0
        for count in np.flatnonzero(np.bincount(words)).tolist() if len(self._start) else ():
            rows = np.flatnonzero(words == count) if count else _NOTHING
            if len(rows):
                found[rows] = self._compared(start[rows], length[rows], count)
        return found

    def _compared(self, start: I64, length: I64, count: int) -> I64:
        written = self._read(start, length, count)
        hashes = _hashes(written, length)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        same = (self._hashes[place] == hashes) & (self._length[place] == length)
        seen = self._read(np.where(same, self._start[place], start), length, count)
        alike = written == seen
        if not alike.all():
            same &= alike.all(axis=1)
        return np.where(same, self._stack[place], UNKNOWN)

    def _read(self, start: I64, length: I64, count: int) -> U64:
        """So many words a row. Of the first, what lies before the body is left out."""
        width = 8 * count
        whole = np.ndarray((len(self._data) - width + 1,), f"V{width}", self._data, 0, (1,))
        found: U64 = whole[start + length - width].view(np.uint64).reshape(-1, count)
        found[:, 0] >>= (8 * (width - length)).astype(np.uint64)
        return found

    def _settle(self) -> None:
        """What was learned since."""
        if not self._new:
            return
        start, length, stack = np.array(self._new, np.int64).T
        self._new = []
        hashes = np.zeros(len(start), np.uint64)
        words = (length + 7) >> 3
        for count in np.unique(words).tolist():
            rows = np.flatnonzero(words == count)
            hashes[rows] = _hashes(self._read(start[rows], length[rows], count), length[rows])
        hashes = np.append(self._hashes, hashes)
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._start = np.append(self._start, start)[order]
        self._length = np.append(self._length, length)[order]
        self._stack = np.append(self._stack, stack)[order]


def _hashes(written: U64, length: I64) -> U64:
    found: U64 = np.matmul(written, _FACTORS[: written.shape[1]]).view(np.uint64)
    found += length.view(np.uint64)
    found ^= found >> np.uint64(29)
    return found
