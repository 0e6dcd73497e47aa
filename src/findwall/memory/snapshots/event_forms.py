"""The ways in which events of one kind are written: which bytes are the same in each, and where values lie.

A number is as long as it must be, and a reference has two bytes or five. So events with the same keys differ
in their form, but there are few forms, and events of one are read together without looking at each value.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.snapshots.pickled_values import Data
from findwall.model.events import Bool
from findwall.model.memory_history import I64, U64

NUMBERS = ("addr", "size", "time_us")
LONGEST_FORM = 4096  # bytes up to the frames
BEFORE = 2  # bytes of an event before its mark, at the most

_MEMOIZE, _LIST, _MARK, _SETITEMS, _DICT = (ord(code) for code in ("\x94", "]", "(", "u", "}"))
_GET_1, _GET_4, _LONG1, _TEXT, _BININT = (ord(code) for code in ("h", "j", "\x8a", "\x8c", "J"))
# How long a value is by its first byte. LONG1 and texts say in their second how much longer.
_LENGTHS = (("K", 2), ("M", 3), ("J", 5), ("h", 2), ("j", 5), ("N\x88\x89", 1), ("\x8a\x8c", 2))
_LENGTH_OF = {ord(code): length for codes, length in _LENGTHS for code in codes}

SHARED, EMPTY, BODY = range(3)  # frames: a list that was there before, an empty one, a list of references


class Field(msgspec.Struct, frozen=True):
    """A number in an event: little-endian, with a sign where it is written with more than two bytes."""

    at: int
    length: int
    is_signed: bool = False

    def of(self, events: np.ndarray, width: int) -> I64:
        whole: I64 = np.ndarray((len(events),), "<i8", events.view(np.uint8), self.at, (width,)).copy()
        shift = 64 - 8 * min(self.length, 8)
        if not shift:
            return whole
        if self.is_signed:
            return (whole << shift) >> shift
        return whole & ((1 << 8 * self.length) - 1)


class EventForm(msgspec.Struct, frozen=True):
    """Places are counted from `BEFORE` bytes before the mark."""

    mask: U64  # of the bytes that every event of this form has
    wanted: bytes  # what these are
    is_kept: bool  # the memo keeps the event
    action: Field
    numbers: dict[str, Field]
    texts: list[tuple[int, int]]  # those the memo keeps: where, and how long
    frames: int
    keeps_list: bool
    shared: Field | None
    end: int  # of a body: where it begins; else of the event

    @property
    def width(self) -> int:
        return len(self.wanted)

    @property
    def kept(self) -> int:
        """How much the memo keeps of it."""
        return self.is_kept + len(self.texts) + self.keeps_list

    def are_of(self, events: np.ndarray) -> Bool:
        """Which of these are of this form."""
        words, wanted = events.view(np.uint64).reshape(len(events), -1), np.frombuffer(self.wanted, np.uint64)
        found: Bool = np.ones(len(events), np.bool_)
        for place in np.flatnonzero(self.mask).tolist():
            found &= (words[:, place] & self.mask[place]) == wanted[place]
        return found


def form_of(data: Data, mark: int, keys: list[str], named: list[bytes]) -> EventForm | None:
    """The form of the event with this mark; None where it has none."""
    return _Form(data, mark).read(keys, named)


class _Form:
    def __init__(self, data: Data, mark: int) -> None:
        self._data, self._base, self._cursor = data, mark - BEFORE, mark
        self._fixed: list[tuple[int, int]] = []
        self._action: Field | None = None
        self._numbers: dict[str, Field] = {}
        self._texts: list[tuple[int, int]] = []

    def read(self, keys: list[str], named: list[bytes]) -> EventForm | None:
        data, mark = self._data, self._cursor
        is_kept = data[mark - 1] == _MEMOIZE
        if data[mark - 1 - is_kept] != _DICT or keys[-1] != "frames" or "frames" in keys[:-1]:
            return None
        self._fix(mark - 1 - is_kept, mark + 1)
        for key, name in zip(keys, named, strict=True):
            value = self._cursor + len(name)
            if data[self._cursor : value] != name:
                return None
            self._fix(self._cursor, value)
            if key != "frames" and not self._value(key, value):
                return None
        return None if self._action is None else self._whole(is_kept, self._action)

    def _fix(self, start: int, end: int) -> None:
        self._fixed.append((start - self._base, end - self._base))
        self._cursor = end

    def _value(self, key: str, at: int) -> bool:
        code, second = self._data[at], self._data[at + 1]
        length = _LENGTH_OF.get(code, 0)
        is_text, is_get = code == _TEXT, code in (_GET_1, _GET_4)
        head = 2 if code in (_LONG1, _TEXT) else 1
        self._fix(at, at + head)
        self._cursor = at + length + (second if head == 2 else 0)
        count = self._cursor - at - head
        field = Field(at + head - self._base, count, code in (_LONG1, _BININT))
        if key == "action":
            self._action = field
            return is_get
        if key in NUMBERS:
            self._numbers[key] = field
            return not is_text and not is_get and count > 0 and self._fits(key, count)
        if is_text and key != "stream" and self._data[self._cursor] == _MEMOIZE:
            self._texts.append((field.at, count))
            self._fix(self._cursor, self._cursor + 1)
        return length > 0 and not (is_text and key == "stream")

    def _fits(self, key: str, count: int) -> bool:
        """Nine bytes are an address past 2^63: eight and a zero."""
        if count == 9 and key == "addr" and self._data[self._cursor - 1] == 0:
            self._fix(self._cursor - 1, self._cursor)
            return True
        return count <= 8

    def _whole(self, is_kept: bool, action: Field) -> EventForm | None:
        """With the frames, at which the cursor is."""
        data, at = self._data, self._cursor
        code, kind, keeps_list, shared = data[at], SHARED, False, None
        self._fix(at, at + 1)
        if code == _LIST:
            keeps_list = data[at + 1] == _MEMOIZE
            self._fix(at + 1, at + 1 + keeps_list)
            kind = BODY if data[self._cursor] == _MARK else EMPTY
        elif code in (_GET_1, _GET_4):
            shared = Field(at + 1 - self._base, _LENGTH_OF[code] - 1)
            self._cursor = at + _LENGTH_OF[code]
        else:
            return None
        if (kind != BODY and data[self._cursor] != _SETITEMS) or self._cursor - self._base > LONGEST_FORM:
            return None
        self._fix(self._cursor, self._cursor + 1)
        end = self._cursor - self._base
        mask = np.zeros((end + 15) // 8 * 8, np.uint8)  # eight more: a value is read as eight bytes
        for start, stop in self._fixed:
            mask[start:stop] = 255
        wanted = np.frombuffer(data[self._base : self._base + len(mask)], np.uint8) & mask
        words = mask.view(np.uint64)
        return EventForm(
            words,
            wanted.tobytes(),
            is_kept,
            action,
            self._numbers,
            self._texts,
            kind,
            keeps_list,
            shared,
            end,
        )
