"""Events of a pickle taken by the thousand: those that have the keys of one that was seen.

Nearly all of a snapshot is events that differ in a few numbers. Where one may begin is searched for, and then
all of a stretch of the file is taken apart together, a form at a time (`event_forms`). An event counts only
if every byte of it was accounted for; what is not of this kind, a text or a frame that comes for the first
time, is left to the one who decodes singly.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from findwall.memory.snapshots.event_forms import BEFORE, EMPTY, LONGEST_FORM, NUMBERS, EventForm, form_of
from findwall.memory.snapshots.pickled_values import Data
from findwall.memory.snapshots.stack_bodies import UNKNOWN, StackBodies
from findwall.model.memory_history import I64

WINDOW_BYTES = 1 << 21  # of the file at a time: ten thousand events, and all of it fits a cache
LONGEST_EVENT = 2 * LONGEST_FORM  # bytes that may be looked at; what begins so near the end is no row
MOST_TRIES = 64  # to learn a form in one window
MOST_FORMS = 256  # of one pattern; torch's events have about ten
AWAITED = -3  # in place of a stack: it is a list that the memo holds
_MARK, _MEMOIZE, _APPENDS, _SETITEMS = (ord(code) for code in ("(", "\x94", "e", "u"))


def reference(place: int) -> bytes:
    """How a pickle names a place of the memo."""
    return b"h%c" % place if place < 256 else b"j" + place.to_bytes(4, "little")


class EventPattern:
    """Events with these keys in this order, each key a reference into the memo, and the frames last."""

    def __init__(self, data: Data, keys: list[str], places: tuple[int, ...], bodies: StackBodies) -> None:
        self.keys, self.data, self.bodies = keys, data, bodies
        self.named = [reference(place) for place in places]
        self.forms: list[EventForm] = []
        self.times: Counter[int] = Counter()  # how often each was seen, by its identity
        self._window: EventWindow | None = None

    def run_at(self, at: int) -> tuple[EventWindow, slice] | None:
        """The events from here on that follow each other, as rows of a window; None where there is none."""
        window = self._window
        if window is None or not window.start <= at < window.end:
            window = self._window = EventWindow(self, at)
        rows = window.rows_from(at)
        return None if rows is None else (window, rows)


class EventWindow:
    """A stretch of the file. Columns have a row for every event that may begin in it."""

    def __init__(self, pattern: EventPattern, at: int) -> None:
        data = pattern.data
        self.start, self.end = at, min(at + WINDOW_BYTES, len(data))
        self._bytes = np.frombuffer(data, np.uint8)
        marks = at + np.flatnonzero(self._bytes[at : min(self.end, len(data) - LONGEST_EVENT)] == _MARK)
        for place, byte in enumerate(pattern.named[0]):  # an event begins with its first key
            marks = marks[self._bytes[marks + 1 + place] == byte]
        # Python keeps every event in the memo, C++ none.
        self.begin = marks - 1 - (self._bytes[marks - 1] == _MEMOIZE)
        self.base = marks - BEFORE
        count = len(marks)
        self.ok = np.zeros(count, np.bool_)
        self.action, self.finish = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.numbers = {key: np.zeros(count, np.int64) for key in NUMBERS if key in pattern.keys}
        self.shared, self._body, self._body_end = (np.zeros(count, np.int64) for _ in range(3))
        self.stack = np.full(count, UNKNOWN, np.int32)
        self.kept = np.zeros(count, np.int64)  # how much the memo keeps of each
        self.keeps_list = np.zeros(count, np.bool_)
        self.texts: dict[int, EventForm] = {}  # rows with texts that the memo keeps
        self._take_apart(pattern)
        self._breaks = np.flatnonzero(~(self.ok[1:] & (self.begin[1:] == self.finish[:-1])))

    def rows_from(self, at: int) -> slice | None:
        first = int(np.searchsorted(self.begin, at))
        if first >= len(self.begin) or self.begin[first] != at or not self.ok[first]:
            return None
        following = int(np.searchsorted(self._breaks, first))
        last = int(self._breaks[following]) if following < len(self._breaks) else len(self.begin) - 1
        return slice(first, last + 1)

    def body(self, row: int) -> tuple[int, int]:
        """Where the references to its frames begin and end."""
        return int(self._body[row]), int(self._body_end[row])

    def _take_apart(self, pattern: EventPattern) -> None:
        """First the forms that are known, the most frequent first; then those that come up."""
        left = np.arange(len(self.begin))
        for form in pattern.forms:
            left = self._of_form(pattern, form, left)
        for _ in range(MOST_TRIES):
            if not len(left):
                break
            fresh = form_of(pattern.data, int(self.base[left[0]]) + BEFORE, pattern.keys, pattern.named)
            if fresh is None or len(pattern.forms) == MOST_FORMS:
                left = left[1:]
            else:
                pattern.forms.append(fresh)
                left = self._of_form(pattern, fresh, left)
        pattern.forms.sort(key=lambda form: -pattern.times[id(form)])
        with_body = np.flatnonzero(self._body)
        found = pattern.bodies.numbers(self._body[with_body], self._body_end[with_body])
        self.stack[with_body] = found

    def _of_form(self, pattern: EventPattern, form: EventForm, among: I64) -> I64:
        """Read the rows of this form; the others."""
        if not len(among):
            return among
        width = form.width
        events = np.ndarray((len(self._bytes) - width + 1,), f"V{width}", pattern.data, 0, (1,))[
            self.base[among]
        ]
        are = form.are_of(events)
        if not are.any():
            return among
        rows, events = among[are], events[are]
        pattern.times[id(form)] += len(rows)
        self.ok[rows] = True
        self.action[rows] = form.action.of(events, width)
        for key, field in form.numbers.items():
            self.numbers[key][rows] = field.of(events, width)
        self.kept[rows], self.keeps_list[rows] = form.kept, form.keeps_list
        if form.texts:
            self.texts |= dict.fromkeys(rows.tolist(), form)
        self.finish[rows] = self.base[rows] + form.end
        if form.shared is not None:
            self.stack[rows], self.shared[rows] = AWAITED, form.shared.of(events, width)
        elif form.frames == EMPTY:
            self.stack[rows] = 0
        else:
            self._with_body(rows)
        others: I64 = among[~are]
        return others

    def _with_body(self, rows: I64) -> None:
        """Up to the next event there must be the body, and the end of the list and of the event."""
        start, following = self.finish[rows], np.append(self.begin, 0)[rows + 1]
        whole = (self._bytes[following - 2] == _APPENDS) & (self._bytes[following - 1] == _SETITEMS)
        whole &= following - 2 >= start
        self.ok[rows], self.finish[rows] = whole, following
        self._body[rows] = np.where(whole, start, 0)
        self._body_end[rows] = np.where(whole, following - 2, 0)
