"""A pickle of plain data, decoded without an unpickler: numbers, texts, lists, dicts, and nothing that runs.

`pickle` would make a dict an event, and what it imports it runs. Here the dicts of a snapshot become rows and
numbers as soon as they are whole: an event a row of columns, a frame and a stack a number each. Runs of
events that look alike, which are nearly all of a file, are taken together (`event_windows`).
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from itertools import compress
from typing import Any

import numpy as np

from findwall.memory.event_windows import EventPattern, EventWindow, are_references
from findwall.model.memory_history import ACTIONS

LONGEST_TEXT = 1 << 16  # characters: names of C++ templates are a tenth of that; longer ones are cut
MOST_KEYS = 16  # of an event; torch has written nine
MOST_LINES = 1 << 31  # of a file
MOST_PATTERNS = 8  # of events with other keys, or in another order: torch has written three
DEEPEST = 1000  # lists and dicts in each other; a snapshot has six
FRAME_KEYS = frozenset(("name", "filename", "line"))
_ACTION_OF = {name: number for number, name in enumerate(ACTIONS)}
_64_BITS = (1 << 64) - 1

_EACH_GET = re.compile(rb"h.|j....", re.DOTALL)


class RefusedError(Exception):
    """This is no plain data, or no pickle. Says what it is, as the end of a sentence."""


class Frame(int):
    """The number of a frame."""


class Stack(int):
    """The number of a stack."""


class _Event:
    """Stands where an event was."""


_EVENT = _Event()


class Rows:
    """Events of one list, as a range of rows."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Columns:
    """The events of all devices, in the order of the file."""

    def __init__(self) -> None:
        self.action, self.address = array("B"), array("Q")
        self.size, self.time, self.stack = array("q"), array("q"), array("i")

    def __len__(self) -> int:
        return len(self.action)


class PlainPickle:
    """Decodes once: `load` gives the document, with `Rows` in the place of events."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.columns = Columns()
        self.frames: dict[tuple[str, str, int], Frame] = {}
        self.stacks: dict[tuple[int, ...], Stack] = {(): Stack(0)}
        self._data, self._at = _unframed(data), 0
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: list[Any] = []
        self._place: dict[int, int] = {}  # where the memo holds a list or dict that may yet become a number
        self._text_places: dict[int, int] = {}  # the same of texts, by identity: equal ones are held apart
        self._taken = 0  # rows that are in a list already
        self._patterns: dict[tuple[int, ...], EventPattern] = {}
        self._bodies: dict[bytes, Stack] = {b"": self.stacks[()]}  # by the references that make them
        self._do: dict[int, Callable[[], None]] = {
            ord(code): getattr(self, f"_{name}") for code, name in _OPCODES.items()
        }

    def load(self) -> Any:
        """The whole; raises RefusedError."""
        if self._data[:1] != b"\x80":
            raise RefusedError("does not begin as a pickle does")
        data, do = self._data, self._do
        try:
            while True:
                code = data[self._at]
                self._at += 1
                if code == 0x2E:  # STOP
                    return self._stack.pop()
                run = do.get(code)
                if run is None:
                    raise RefusedError(self._forbidden(code))
                run()
        except (IndexError, struct.error):
            raise RefusedError(f"is cut off or damaged near byte {self._at:,}") from None
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, UnicodeError):
            raise RefusedError(f"is damaged near byte {self._at:,}") from None

    # -- what is refused, by name --------------------------------------------------------------------------

    def _forbidden(self, code: int) -> str:
        import pickletools

        known = next((one for one in pickletools.opcodes if one.code == chr(code)), None)
        if known is None:
            return f"is damaged near byte {self._at:,}"
        if known.name in ("GLOBAL", "INST"):
            lines = self._data[self._at : self._at + 512].split(b"\n")[:2]
            named = ".".join(line.decode("utf-8", "replace") for line in lines)
            return f"wants to import {named[:80]!r}"
        if known.name == "STACK_GLOBAL":
            named = ".".join(part[:80] for part in self._stack[-2:] if isinstance(part, str))
            return f"wants to import {named!r}"
        what = "wants to call something" if known.name in _CALLS else "holds what is no plain data"
        return f"{what} ({known.name})"

    # -- numbers and texts ---------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise IndexError
        return self._data[start : self._at]

    def _number(self, count: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(count), "little", signed=signed)

    def _proto(self) -> None:
        if not 2 <= self._number(1) <= 5:
            raise RefusedError("is a pickle of a protocol that torch does not write")

    def _frame(self) -> None:
        self._take(8)

    def _binint1(self) -> None:
        self._stack.append(self._number(1))

    def _binint2(self) -> None:
        self._stack.append(self._number(2))

    def _binint(self) -> None:
        self._stack.append(self._number(4, signed=True))

    def _long1(self) -> None:
        self._stack.append(self._number(self._number(1), signed=True))

    def _binfloat(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _none(self) -> None:
        self._stack.append(None)

    def _true(self) -> None:
        self._stack.append(True)

    def _false(self) -> None:
        self._stack.append(False)

    def _text(self, count: int) -> None:
        text = self._take(count).decode("utf-8", "replace")
        self._stack.append(text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT])

    def _short_unicode(self) -> None:
        self._text(self._number(1))

    def _unicode(self) -> None:
        self._text(self._number(4))

    def _unicode8(self) -> None:
        self._text(self._number(8))

    # -- the memo ------------------------------------------------------------------------------------------

    def _memoize(self) -> None:
        value = self._stack[-1]
        if isinstance(value, list | dict):
            self._place[id(value)] = len(self._memo)
        elif isinstance(value, str):
            self._text_places[id(value)] = len(self._memo)
        self._memo.append(value)

    def _put(self, place: int) -> None:
        if place != len(self._memo):  # both writers number them one by one
            raise RefusedError(f"is damaged near byte {self._at:,}")
        self._memoize()

    def _binput(self) -> None:
        self._put(self._number(1))

    def _long_binput(self) -> None:
        self._put(self._number(4))

    def _get(self, place: int) -> Any:
        value = self._memo[place]
        if value is _EVENT:
            raise RefusedError("holds an event twice")
        return value

    def _binget(self) -> None:
        self._stack.append(self._get(self._data[self._at]))
        self._at += 1

    def _long_binget(self) -> None:
        self._stack.append(self._get(self._number(4)))

    # -- lists and dicts -----------------------------------------------------------------------------------

    def _mark(self) -> None:
        if len(self._below) > DEEPEST:
            raise RefusedError("holds lists in lists without end")
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _empty_list(self) -> None:
        self._stack.append([])

    def _empty_tuple(self) -> None:
        self._stack.append(())

    def _tuple(self) -> None:
        items = self._since_mark()
        self._stack.append(tuple(items))

    def _last_as_tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _tuple1(self) -> None:
        self._last_as_tuple(1)

    def _tuple2(self) -> None:
        self._last_as_tuple(2)

    def _tuple3(self) -> None:
        self._last_as_tuple(3)

    def _pop(self) -> None:
        self._stack.pop()

    def _append(self) -> None:
        self._extend([self._stack.pop()])

    def _appends(self) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if items and items[0] is _EVENT:
            self._extend_by_rows(target, items)
        elif isinstance(target, Stack):  # deeper than a batch of the writer
            before = next(frames for frames, number in self.stacks.items() if number == target)
            self._stack[-1] = self._stack_number((*before, *items))
        elif not isinstance(target, list):
            raise TypeError
        elif items and not target and isinstance(items[0], Frame):
            self._became(target, self._stack_number(tuple(items)))
        else:
            target.extend(items)

    def _extend_by_rows(self, target: Any, items: list[Any]) -> None:
        end = len(self.columns)
        start = end - len(items)
        if start < self._taken or items.count(_EVENT) != len(items):
            raise RefusedError("mixes events with other things")
        self._taken = end
        if target and isinstance(target[-1], Rows) and target[-1].end == start:
            target[-1].end = end
        else:
            target.append(Rows(start, end))

    def _stack_number(self, frames: tuple[Any, ...]) -> Stack:
        if not all(isinstance(frame, Frame) for frame in frames):
            raise TypeError
        return self.stacks.setdefault(frames, Stack(len(self.stacks)))

    def _became(self, was: list[Any] | dict[Any, Any], value: Any) -> None:
        """The list or dict on top is whole, and a number from now on."""
        place = self._place.pop(id(was), None)
        if place is not None:
            self._memo[place] = value
        self._stack[-1] = value

    def _empty_dict(self) -> None:
        if not (self._patterns and self._run_of_events()):
            self._stack.append({})

    def _setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _setitems(self) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target, keys = self._stack[-1], items[::2]
        new = dict(zip(keys, items[1::2], strict=True))
        if not isinstance(target, dict):
            raise TypeError
        if target or not new:
            target.update(new)
        elif new.keys() == FRAME_KEYS:
            key = str(new["name"]), str(new["filename"]), min(max(int(new["line"]), 0), MOST_LINES)
            self._became(target, self.frames.setdefault(key, Frame(len(self.frames))))
        elif "action" in new:
            self._add(new)
            self._became(target, _EVENT)
            self._learn(keys)
        else:
            target.update(new)

    # -- events --------------------------------------------------------------------------------------------

    def _add(self, event: dict[Any, Any]) -> None:
        columns = self.columns
        address = event.get("addr", event.get("device_free", 0))
        columns.address.append(address & _64_BITS)
        columns.size.append(event.get("size", 0))
        columns.time.append(event.get("time_us", -1))
        columns.stack.append(self._frames_of(event.get("frames", -1)))
        columns.action.append(_ACTION_OF.get(event["action"], 0))

    def _frames_of(self, value: Any) -> int:
        if isinstance(value, Stack):
            return value
        return 0 if isinstance(value, list) and not value else -1

    def _learn(self, keys: list[Any]) -> None:
        """A pattern of events with these keys, once the memo holds them all."""
        places = tuple(self._text_places.get(id(key), -1) for key in keys)
        if keys[-1] != "frames" or len(keys) > MOST_KEYS:  # all versions write them last
            return
        if -1 not in places and places not in self._patterns and len(self._patterns) < MOST_PATTERNS:
            self._patterns[places] = EventPattern(self._data, keys, places)

    def _run_of_events(self) -> bool:
        """Take events as long as they look like one that was seen; whether there was any."""
        for pattern in self._patterns.values():
            found = pattern.run_at(self._at - 1)
            if found is not None and (count := self._add_rows(*found)):
                self._stack.extend([_EVENT] * count)
                return True
        return False

    def _add_rows(self, window: EventWindow, rows: slice) -> int:
        """Rows of a window become rows of the columns, as far as their frames are references; how many."""
        stacks = self._stacks_of(window, rows)
        count = len(stacks)
        if not count:
            return 0
        rows = slice(rows.start, rows.start + count)
        none = np.zeros(count, np.int64)
        values = {key: column[rows] for key, column in window.numbers.items()}
        actions, places = np.unique(window.action[rows], return_inverse=True)
        codes = [_ACTION_OF.get(self._get(place), 0) for place in actions.tolist()]
        columns = self.columns
        columns.stack.extend(stacks)
        columns.action.frombytes(np.array(codes, np.uint8)[places].tobytes())
        columns.address.frombytes(values.get("addr", values.get("device_free", none)).tobytes())
        columns.size.frombytes(values.get("size", none).tobytes())
        columns.time.frombytes(values.get("time_us", none - 1).tobytes())
        self._at = int(window.finish[rows.stop - 1])
        return count

    def _stacks_of(self, window: EventWindow, rows: slice) -> list[int]:
        """Their stacks, up to the first whose frames are more than references."""
        data, bodies = self._data, self._bodies
        spans = zip(window.body[rows].tolist(), window.body_end[rows].tolist(), strict=True)
        written = [data[start:end] for start, end in spans]
        numbers: list[Any] = list(map(bodies.get, written))
        while None in numbers:
            at = numbers.index(None)
            if not are_references(written[at]):  # frames that come for the first time
                del numbers[at:], written[at:]
                rows = slice(rows.start, rows.start + at)
                break
            frames = tuple(self._get(_place(token)) for token in _EACH_GET.findall(written[at]))
            bodies[written[at]] = self._stack_number(frames)
            numbers[at:] = map(bodies.get, written[at:])
        self._keep(window, rows, numbers)
        shared = np.flatnonzero(window.is_shared[rows]).tolist()
        memo = self._memo
        for row, place in zip(shared, window.shared[rows][shared].tolist(), strict=True):
            known = memo[place]
            numbers[row] = known if type(known) is Stack else self._frames_of(self._get(place))
        return numbers

    def _keep(self, window: EventWindow, rows: slice, numbers: list[Any]) -> None:
        """What the memo keeps of events, in its order: an event, its texts, its list of frames."""
        kept = [window.is_kept[rows], *(text[2][rows] for text in window.texts), window.keeps_list[rows]]
        places = np.cumsum(np.array(kept, np.int64).T).reshape(-1, len(kept)).T - 1
        fresh: list[Any] = [_EVENT] * (int(places[-1, -1]) + 1 if numbers else 0)
        for (start, length, _), is_kept, place in zip(window.texts, kept[1:-1], places[1:-1], strict=True):
            known = np.flatnonzero(is_kept)
            for at, first, count in np.stack([place, start[rows], length[rows]])[:, known].T.tolist():
                fresh[at] = self._data[first : first + count].decode("utf-8", "replace")
        lists = zip(places[-1][kept[-1]].tolist(), compress(numbers, kept[-1].tolist()), strict=True)
        for at, number in lists:
            fresh[at] = number
        self._memo.extend(fresh)


def _unframed(data: bytes | bytearray) -> bytes:
    """Without the marks that cut a pickle into frames, which would lie in the midst of events."""
    whole = memoryview(data)
    pieces, at = [whole[:2]], 2
    while data[at : at + 1] == b"\x95" and len(data) >= at + 9:
        end = at + 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        pieces.append(whole[at + 9 : end])
        at = end
    return b"".join([*pieces, whole[at:]])


def _place(token: bytes) -> int:
    return int.from_bytes(token[1:], "little")


_CALLS = frozenset(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "BUILD"))
_OPCODES = {
    "\x80": "proto",
    "\x95": "frame",
    "K": "binint1",
    "M": "binint2",
    "J": "binint",
    "\x8a": "long1",
    "G": "binfloat",
    "N": "none",
    "\x88": "true",
    "\x89": "false",
    "\x8c": "short_unicode",
    "X": "unicode",
    "\x8d": "unicode8",
    "\x94": "memoize",
    "q": "binput",
    "r": "long_binput",
    "h": "binget",
    "j": "long_binget",
    "(": "mark",
    "]": "empty_list",
    ")": "empty_tuple",
    "t": "tuple",
    "\x85": "tuple1",
    "\x86": "tuple2",
    "\x87": "tuple3",
    "0": "pop",
    "a": "append",
    "e": "appends",
    "}": "empty_dict",
    "s": "setitem",
    "u": "setitems",
}
