"""What a pickle of a snapshot becomes while it is decoded: numbers for frames and stacks, rows for events."""

from __future__ import annotations

import mmap
from array import array
from typing import Any

import numpy as np

from findwall.model.memory_history import I32, I64, U8

Data = bytes | bytearray | mmap.mmap
# What lies at a place of the memo, where it is no stack.
_EVENT_NUMBER, _OTHER = -1, -2


class RefusedError(Exception):
    """This is no plain data, or no pickle. Says what it is, as the end of a sentence."""


class Frame(int):
    """The number of a frame."""


class Stack(int):
    """The number of a stack."""


class _Event:
    """Stands where an event was."""


EVENT = _Event()


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

    def extend(self, action: U8, address: I64, size: I64, time: I64, stack: I32) -> None:
        """Some rows, at least one."""
        self.action.frombytes(action.data.cast("B"))
        self.address.frombytes(address.data.cast("B"))
        self.size.frombytes(size.data.cast("B"))
        self.time.frombytes(time.data.cast("B"))
        self.stack.frombytes(stack.data.cast("B"))


class Stacks(dict[tuple[int, ...], Stack]):
    """Every stack that is different from the others, with its number: the empty one is 0."""

    def __init__(self) -> None:
        super().__init__({(): Stack(0)})

    def number_of(self, frames: tuple[Any, ...]) -> Stack:
        if not all(isinstance(frame, Frame) for frame in frames):
            raise TypeError
        return self.setdefault(frames, Stack(len(self)))


class Memo:
    """What the writer numbered, to name it again. Nearly all of it is events and stacks: a number each."""

    def __init__(self) -> None:
        self._numbers = array("i")
        self._others: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, value: Any) -> None:
        self._numbers.append(_OTHER)
        self.replace(len(self._numbers) - 1, value)

    def replace(self, place: int, value: Any) -> None:
        self._others.pop(place, None)
        if isinstance(value, Stack):
            self._numbers[place] = value
        elif value is EVENT:
            self._numbers[place] = _EVENT_NUMBER
        else:
            self._numbers[place] = _OTHER
            self._others[place] = value

    def get(self, place: int) -> Any:
        number = self._numbers[place]
        if number >= 0:
            return Stack(number)
        if number == _EVENT_NUMBER:
            raise RefusedError("holds an event twice")
        return self._others[place]

    def numbers_at(self, places: I64) -> I32:
        """The numbers of the stacks there; negative where something else is."""
        found: I32 = np.frombuffer(self._numbers, np.int32)[places]
        return found

    def add_events(self, count: int, places: I64, stacks: I32, texts: dict[int, str]) -> None:
        """So many at once: stacks at these places, counted from here on, and texts; all others are events."""
        fresh = np.full(count, _EVENT_NUMBER, np.int32)
        fresh[places] = stacks
        fresh[list(texts)] = _OTHER
        start = len(self._numbers)
        self._others |= {start + place: text for place, text in texts.items()}
        self._numbers.frombytes(fresh.data.cast("B"))
