"""A pickle of plain data, decoded without an unpickler: numbers, texts, lists, dicts, and nothing that runs.

`pickle` would make a dict an event, and what it imports it runs. Here the dicts of a snapshot become rows and
numbers as soon as they are whole: an event a row of columns, a frame and a stack a number each. Runs of
events that look alike, which are nearly all of a file, are taken together (`event_runs`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from findwall.memory.snapshots.event_runs import ACTION_OF, EventRuns, stack_of
from findwall.memory.snapshots.pickled_values import (
    EVENT,
    Columns,
    Data,
    Frame,
    Memo,
    RefusedError,
    Rows,
    Stack,
    Stacks,
)
from findwall.model.memory_history import ALLOC, HIGHEST_ADDRESS, OOM, SEGMENT_UNMAP

LONGEST_TEXT = 1 << 16  # characters: names of C++ templates are a tenth of that; longer ones are cut
MOST_LINES = 1 << 31  # of a file
DEEPEST = 1000  # lists and dicts in each other; a snapshot has six
MOVES = range(ALLOC, SEGMENT_UNMAP + 1)  # the actions that concern some bytes at some address
FRAME_KEYS = frozenset(("name", "filename", "line"))


class PlainPickle:
    """Decodes once: `load` gives the document, with `Rows` in the place of events."""

    def __init__(self, data: Data) -> None:
        """A bytearray or a map of memory is changed: it need not be there twice."""
        self.columns = Columns()
        self.frames: dict[tuple[str, str, int], Frame] = {}
        self.stacks = Stacks()
        self._data, self._at = _unframed(data), 0
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo = Memo()
        self._place: dict[int, int] = {}  # where the memo holds a list or dict that may yet become a number
        self._text_places: dict[int, int] = {}  # the same of texts, by identity: equal ones are held apart
        self._taken = 0  # rows that are in a list already
        self._runs = EventRuns(self._data, self.columns, self._memo, self.stacks)
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
            at = min(self._at, len(self._data))
            raise RefusedError(f"is cut off or damaged near byte {at:,}") from None
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
        return bytes(self._data[start : self._at])

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
        self._memo.add(value)

    def _put(self, place: int) -> None:
        if place != len(self._memo):  # both writers number them one by one
            raise RefusedError(f"is damaged near byte {self._at:,}")
        self._memoize()

    def _binput(self) -> None:
        self._put(self._number(1))

    def _long_binput(self) -> None:
        self._put(self._number(4))

    def _binget(self) -> None:
        self._stack.append(self._memo.get(self._data[self._at]))
        self._at += 1

    def _long_binget(self) -> None:
        self._stack.append(self._memo.get(self._number(4)))

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
        if items and items[0] is EVENT:
            self._extend_by_rows(target, items)
        elif isinstance(target, Stack):  # deeper than a batch of the writer
            before = next(frames for frames, number in self.stacks.items() if number == target)
            self._stack[-1] = self.stacks.number_of((*before, *items))
        elif not isinstance(target, list):
            raise TypeError
        elif items and not target and isinstance(items[0], Frame):
            self._became(target, self.stacks.number_of(tuple(items)))
        else:
            target.extend(items)

    def _extend_by_rows(self, target: Any, items: list[Any]) -> None:
        end = len(self.columns)
        start = end - len(items)
        if start < self._taken or items.count(EVENT) != len(items):
            raise RefusedError("mixes events with other things")
        self._taken = end
        if target and isinstance(target[-1], Rows) and target[-1].end == start:
            target[-1].end = end
        else:
            target.append(Rows(start, end))

    def _became(self, was: list[Any] | dict[Any, Any], value: Any) -> None:
        """The list or dict on top is whole, and a number from now on."""
        place = self._place.pop(id(was), None)
        if place is not None:
            self._memo.replace(place, value)
        self._stack[-1] = value

    def _empty_dict(self) -> None:
        count, end = self._runs.take(self._at - 1)
        if count:
            self._at = end
            self._stack.extend([EVENT] * count)
        else:
            self._stack.append({})

    def _setitem(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _setitems(self) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target, keys = self._stack[-1], items[::2]
        # Other keys torch never writes, and a tuple in tuples is hashed for hours.
        if not isinstance(target, dict) or not all(isinstance(key, str) for key in keys):
            raise TypeError
        new = dict(zip(keys, items[1::2], strict=True))
        if target or not new:
            target.update(new)
        elif new.keys() == FRAME_KEYS:
            name, file, line = new["name"], new["filename"], new["line"]
            if not (isinstance(name, str) and isinstance(file, str) and isinstance(line, int)):
                raise TypeError
            key = name, file, min(max(line, 0), MOST_LINES)
            self._became(target, self.frames.setdefault(key, Frame(len(self.frames))))
        elif "action" in new:
            self._add(new)
            self._became(target, EVENT)
            self._learn(keys)
        else:
            target.update(new)

    # -- events --------------------------------------------------------------------------------------------

    def _add(self, event: dict[Any, Any]) -> None:
        columns, action = self.columns, event["action"]
        if not isinstance(action, str):
            raise TypeError
        number = ACTION_OF.get(action, 0)
        if number in MOVES and "addr" not in event:
            raise KeyError
        address = event.get("device_free", HIGHEST_ADDRESS) if number == OOM else event.get("addr", 0)
        columns.address.append(address & HIGHEST_ADDRESS)
        columns.size.append(event["size"] if number in MOVES else event.get("size", 0))
        columns.time.append(event.get("time_us", -1))
        columns.stack.append(stack_of(event.get("frames", -1)))
        columns.action.append(number)

    def _learn(self, keys: list[Any]) -> None:
        self._runs.learn(keys, tuple(self._text_places.get(id(key), -1) for key in keys))


def _unframed(data: Data) -> Data:
    """Without the marks that cut a pickle into frames, which would lie in the midst of events."""
    if data[2:3] != b"\x95":
        return data
    if isinstance(data, bytes):
        data = bytearray(data)
    at = end = 2
    with memoryview(data) as whole:
        while len(whole) >= at + 9 and whole[at] == 0x95:
            start, at = at + 9, min(at + 9 + int.from_bytes(whole[at + 1 : at + 9], "little"), len(whole))
            whole[end : end + at - start] = whole[start:at]
            end += at - start
        rest = len(whole) - at
        whole[end : end + rest] = whole[at:]
    if isinstance(data, bytearray):
        del data[end + rest :]
    else:
        data.resize(end + rest)
    return data


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
