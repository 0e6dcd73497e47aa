"""Events of a pickle taken by the thousand: those that have the keys of one that was seen.

Nearly all of a snapshot is events that differ in a few numbers. Where one may begin is searched for, and then
all of a stretch of the file is taken apart together, a value at a time: numpy reads the value of every event,
and where it ends the next key must stand. An event counts only if every byte of it was accounted for; what
is not of this form, a text or a frame that comes for the first time, is left to the one who decodes singly.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from findwall.model.memory_history import I64, U8, U64

WINDOW_BYTES = 1 << 21  # of the file at a time: ten thousand events, and all of it fits a cache
LONGEST_EVENT = 8192  # bytes up to its frames, whatever its values; what begins so near the end is no row
_GETS = re.compile(rb"(?:h.|j....)*", re.DOTALL)
NUMBERS = ("addr", "device_free", "size", "time_us")
Mask = npt.NDArray[np.bool_]

_MEMOIZE, _LIST, _MARK, _APPENDS, _SETITEMS = (ord(code) for code in ("\x94", "]", "(", "e", "u"))
_GET_1, _GET_4, _LONG1, _TEXT = (ord(code) for code in ("h", "j", "\x8a", "\x8c"))
# How long a value is by its first byte; 0 is none. LONG1 and texts say it in their second.
_LENGTH = np.zeros(256, np.int64)
for _codes, _size in (("K", 2), ("M", 3), ("J", 5), ("h", 2), ("j", 5), ("N\x88\x89", 1), ("\x8a\x8c", 2)):
    _LENGTH[[ord(code) for code in _codes]] = _size


def reference(place: int) -> bytes:
    """How a pickle names a place of the memo."""
    return b"h%c" % place if place < 256 else b"j" + place.to_bytes(4, "little")


class EventPattern:
    """Events with these keys in this order, each key a reference into the memo, and the frames last."""

    def __init__(self, data: bytes, keys: list[str], places: tuple[int, ...]) -> None:
        self.keys, self._data = keys, data
        self._named = [reference(place) for place in places]
        self._window: EventWindow | None = None

    def run_at(self, at: int) -> tuple[EventWindow, slice] | None:
        """The events from here on that follow each other, as rows of a window; None where there is none."""
        window = self._window
        if window is None or not window.start <= at < window.end:
            window = self._window = EventWindow(self._data, self.keys, self._named, at)
        rows = window.rows_from(at)
        return None if rows is None else (window, rows)


class EventWindow:
    """A stretch of the file. Columns have a row for every event that may begin in it."""

    def __init__(self, data: bytes, keys: list[str], named: list[bytes], at: int) -> None:
        self.start, self.end = at, min(at + WINDOW_BYTES, len(data))
        self._bytes = np.frombuffer(data, np.uint8)
        # The eight bytes from every byte on.
        self._words: U64 = np.ndarray((max(len(data) - 7, 0),), "<u8", data, 0, (1,))
        last = min(self.end, len(data) - LONGEST_EVENT)
        marks = at + np.flatnonzero(self._bytes[at:last] == _MARK)
        marks = marks[self._is(marks + 1, named[0])]  # an event begins with its first key
        kept = self._at(marks - 1) == _MEMOIZE  # Python keeps every event in the memo, C++ none
        self.is_kept = kept
        self.begin = marks - 1 - kept
        self.ok = self._at(self.begin) == ord("}")
        self.numbers: dict[str, I64] = {}
        self.action: I64 = np.zeros(len(marks), np.int64)
        self.texts: list[tuple[I64, I64, Mask]] = []  # where each is, how long, and whether the memo keeps it
        cursor = marks + 1
        for key, name in zip(keys, named, strict=True):
            cursor = self._skip(cursor, name)
            cursor = self._frames(cursor) if key == "frames" else self._value(key, cursor)
        self.finish = cursor
        self._breaks = np.flatnonzero(~(self.ok[1:] & (self.begin[1:] == self.finish[:-1])))

    def rows_from(self, at: int) -> slice | None:
        first = int(np.searchsorted(self.begin, at))
        if first >= len(self.begin) or self.begin[first] != at or not self.ok[first]:
            return None
        following = int(np.searchsorted(self._breaks, first))
        last = int(self._breaks[following]) if following < len(self._breaks) else len(self.begin) - 1
        return slice(first, last + 1)

    def _at(self, places: I64) -> U8:
        return self._bytes[places]

    def _word(self, places: I64) -> U64:
        return self._words[places]

    def _is(self, places: I64, name: bytes) -> Mask:
        """Where this reference stands."""
        mask = np.uint64((1 << 8 * len(name)) - 1)
        found: Mask = (self._word(places) & mask) == np.uint64(int.from_bytes(name, "little"))
        return found

    def _skip(self, cursor: I64, name: bytes) -> I64:
        """Past a key, which must be this one."""
        self.ok &= self._is(cursor, name)
        return cursor + len(name)

    def _value(self, key: str, cursor: I64) -> I64:
        code, second = self._at(cursor), self._at(cursor + 1)
        length = _LENGTH[code] + np.where((code == _LONG1) | (code == _TEXT), second, 0)
        self.ok &= length > 0
        is_text, is_get = code == _TEXT, (code == _GET_1) | (code == _GET_4)
        if key == "action":
            self.ok &= is_get
            self.action = self._place(cursor, code)
        elif key in NUMBERS:
            self.ok &= ~is_text & ~is_get & (length > 1)
            self.numbers[key] = self._number(key, cursor, code, length)
        elif key == "stream":
            self.ok &= ~is_text
        elif is_text.any():
            is_kept = is_text & (self._at(cursor + length) == _MEMOIZE)
            self.texts.append((cursor + 2, np.where(is_text, second, 0).astype(np.int64), is_kept))
            length = length + is_kept
        return cursor + length

    def _place(self, cursor: I64, code: U8) -> I64:
        """The place of the memo that is named."""
        bits = np.where(code == _GET_1, np.uint64(0xFF), np.uint64(0xFFFF_FFFF))
        found: I64 = (self._word(cursor + 1) & bits).astype(np.int64)
        return found

    def _number(self, key: str, cursor: I64, code: U8, length: I64) -> I64:
        """Little-endian, with a sign where it is written with more than two bytes."""
        head = np.where(code == _LONG1, 2, 1)
        count = length - head
        whole = self._word(cursor + head).view(np.int64)
        shift = 8 * (8 - np.clip(count, 1, 8))
        signed = (whole << shift) >> shift
        unsigned = ((whole.view(np.uint64) << shift.astype(np.uint64)) >> shift.astype(np.uint64)).view(
            np.int64
        )
        # Nine bytes are an address past 2^63: eight and a zero.
        nine = (count == 9) & (self._at(cursor + head + 8) == 0) & (key in ("addr", "device_free"))
        self.ok &= (count <= 8) | nine
        found: I64 = np.where((code == _LONG1) | (code == ord("J")), signed, unsigned)
        return found

    def _frames(self, cursor: I64) -> I64:
        """The list of frames: one that was there before, an empty one, or references up to the next event."""
        code = self._at(cursor)
        self.is_shared = (code == _GET_1) | (code == _GET_4)
        self.shared = self._place(cursor, code)
        is_list = code == _LIST
        self.keeps_list = is_list & (self._at(cursor + 1) == _MEMOIZE)
        inside = cursor + 1 + self.keeps_list
        has_body = is_list & (self._at(inside) == _MARK)
        following = np.append(self.begin[1:], 0)
        is_whole = (self._at(following - 2) == _APPENDS) & (following - 2 > inside)
        has_body &= is_whole
        empty = is_list & (self._at(inside) != _MARK)
        # Of what has none, the body is nothing.
        self.body, self.body_end = inside + 1, np.where(has_body, following - 2, inside + 1)
        finish = np.where(self.is_shared, cursor + _LENGTH[code], np.where(empty, inside, following - 1))
        self.ok &= (self.is_shared | empty | has_body) & (self._at(finish) == _SETITEMS)
        return finish + 1


def are_references(body: bytes) -> bool:
    """Whether these bytes are nothing but references into the memo."""
    return _GETS.fullmatch(body) is not None
