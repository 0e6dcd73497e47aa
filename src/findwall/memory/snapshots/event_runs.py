"""Runs of alike events, from windows of the file into the columns and the memo."""

from __future__ import annotations

import numpy as np

from findwall.memory.snapshots.event_windows import AWAITED, EventPattern, EventWindow
from findwall.memory.snapshots.pickled_values import Columns, Data, Memo, Stack, Stacks
from findwall.memory.snapshots.stack_bodies import UNKNOWN, StackBodies
from findwall.model.memory_history import ACTIONS, I32, I64, U8

MOST_KEYS = 16  # of an event; torch has written nine
MOST_PATTERNS = 8  # of events with other keys, or in another order: torch has written three
ACTION_OF = {name: number for number, name in enumerate(ACTIONS)}


class EventRuns:
    def __init__(self, data: Data, columns: Columns, memo: Memo, stacks: Stacks) -> None:
        self._data, self._columns, self._memo = data, columns, memo
        self._bodies = StackBodies(data, memo, stacks)
        self._patterns: dict[tuple[int, ...], EventPattern] = {}
        self._codes = np.zeros(0, np.int16)  # of the action at each place of the memo; -1 is not known

    def learn(self, keys: list[str], places: tuple[int, ...]) -> None:
        """A pattern of events with these keys, once the memo holds them all; -1: it does not."""
        if keys[-1] != "frames" or len(keys) > MOST_KEYS:  # all versions write them last
            return
        if "addr" not in keys or "size" not in keys:  # a request that failed: few are
            return
        if -1 not in places and places not in self._patterns and len(self._patterns) < MOST_PATTERNS:
            self._patterns[places] = EventPattern(self._data, keys, places, self._bodies)

    def take(self, at: int) -> tuple[int, int]:
        """Take events from here on, as long as they look like one that was seen: how many, and their end."""
        for pattern in self._patterns.values():
            found = pattern.run_at(at)
            if found is not None and (count := self._add(*found)):
                window, rows = found
                return count, int(window.finish[rows.start + count - 1])
        return 0, at

    def _add(self, window: EventWindow, rows: slice) -> int:
        """Rows of a window become rows of the columns, as far as their frames are references; how many."""
        stacks = self._stacks_of(window, rows)
        count = len(stacks)
        if not count:
            return 0
        rows = slice(rows.start, rows.start + count)
        self._keep(window, rows, stacks)
        shared = np.flatnonzero(stacks == AWAITED)
        stacks[shared] = self._shared(window.shared[rows][shared])
        numbers = {key: column[rows] for key, column in window.numbers.items()}
        self._columns.extend(
            self._actions(window.action[rows]),
            numbers["addr"],
            numbers["size"],
            numbers.get("time_us", np.full(count, -1)),
            stacks,
        )
        return count

    def _stacks_of(self, window: EventWindow, rows: slice) -> I32:
        """Their stacks, up to the first whose frames are more than references."""
        found: I32 = window.stack[rows].copy()
        for at in np.flatnonzero(found == UNKNOWN).tolist():
            stack = self._bodies.number(*window.body(rows.start + at))
            if stack is None:  # frames that come for the first time
                return found[:at]
            found[at] = stack
        return found

    def _keep(self, window: EventWindow, rows: slice, stacks: I32) -> None:
        """What the memo keeps of events, in its order: an event, its texts, its list of frames."""
        ends = np.cumsum(window.kept[rows])
        if not ends[-1]:
            return
        lists = np.flatnonzero(window.keeps_list[rows])
        texts: dict[int, str] = {}
        for row in window.texts.keys() & range(rows.start, rows.stop) if window.texts else ():
            form, base = window.texts[row], int(window.base[row])
            place = int(ends[row - rows.start]) - form.kept + form.is_kept
            for number, (start, length) in enumerate(form.texts):
                written = self._data[base + start : base + start + length]
                texts[place + number] = written.decode("utf-8", "replace")
        self._memo.add_events(int(ends[-1]), ends[lists] - 1, stacks[lists], texts)

    def _shared(self, places: I64) -> I32:
        """The stacks of lists that the memo holds."""
        found = self._memo.numbers_at(places)
        for at in np.flatnonzero(found < 0).tolist():
            found[at] = stack_of(self._memo.get(int(places[at])))
        return found

    def _actions(self, places: I64) -> U8:
        most = int(places.max())
        if most >= len(self._codes):
            if most >= len(self._memo):
                raise IndexError
            self._codes = np.append(self._codes, np.full(most + 1 - len(self._codes), -1, np.int16))
        found = self._codes[places]
        if (found < 0).any():
            for place in np.unique(places[found < 0]).tolist():
                self._codes[place] = ACTION_OF.get(self._memo.get(place), 0)
            found = self._codes[places]
        return found.astype(np.uint8)


def stack_of(frames: object) -> int:
    """The stack that an event says it has; -1 is none."""
    if isinstance(frames, Stack):
        return frames
    return 0 if isinstance(frames, list) and not frames else -1
