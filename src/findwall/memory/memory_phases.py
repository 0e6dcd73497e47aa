"""Which part of the step each event lies in: set-up, forward, backward or the optimizer.

Autograd runs backward on its own thread, which has no Python on its stack: while it works, the job's thread
waits in `backward()`. So the events of that thread are the backward passes, to the event. What lies between
two of them is an optimizer's step, as torch marks it, and then the next forward.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from findwall.memory.call_stacks import MAIN, NO_PYTHON, OTHER_THREAD, STEP_MARK, CallStacks
from findwall.memory.lives import Lives
from findwall.model.memory_history import (
    ALLOC,
    BACKWARD_PASS,
    FREE_COMPLETED,
    FREE_REQUESTED,
    I64,
    SILENT_PASS,
    UPDATE_PASS,
    DeviceHistory,
    Marked,
)

PHASES = ("unknown", "set-up", "forward", "backward", "optimizer")
UNKNOWN, SET_UP, FORWARD, BACKWARD, OPTIMIZER = range(5)


class Phases(msgspec.Struct, frozen=True):
    """Stretches of events, one after the other, each of one phase."""

    start: I64  # the first event of each stretch
    phase: npt.NDArray[np.uint8]
    count: int  # of events

    def stretch_of(self, events: I64) -> I64:
        """The stretch of each event; -1 of what was before, their number for what never came."""
        found = np.searchsorted(self.start, events, side="right") - 1
        found[events < 0] = -1
        found[events >= self.count] = len(self.start)
        return found

    def of(self, event: int) -> str:
        if not 0 <= event < self.count:
            return PHASES[UNKNOWN]
        return PHASES[int(self.phase[np.searchsorted(self.start, event, side="right") - 1])]

    def end(self, stretch: int) -> int:
        return int(self.start[stretch + 1]) if stretch + 1 < len(self.start) else self.count

    @property
    def whole_backwards(self) -> I64:
        """Backward passes, as stretches, of which beginning and end were recorded."""
        found: I64 = np.flatnonzero(self.phase == BACKWARD)
        return found[(found > 0) & (found < len(self.phase) - 1)]

    @property
    def is_known(self) -> bool:
        return bool((self.phase != UNKNOWN).any())


def phases(history: DeviceHistory, lives: Lives, stacks: CallStacks, marked: tuple[Marked, ...]) -> Phases:
    """The stretches of one device's recording."""
    events = history.events
    count = len(events)
    is_backward = _backward(history, stacks)
    if is_backward is None:
        return Phases(np.zeros(min(count, 1), np.int64), np.zeros(min(count, 1), np.uint8), count)
    edges = np.flatnonzero(np.diff(is_backward)) + 1
    starts = [0, *map(int, edges)]
    updating = stacks.updates[events.stack] | _within(events.time, marked, history.device)
    if history.passes is not None:
        updating |= history.passes == UPDATE_PASS
    found: list[tuple[int, int]] = []
    cut = _Cut(lives, stacks, events.stack, updating, count)
    for at, start in enumerate(starts):
        end = starts[at + 1] if at + 1 < len(starts) else count
        if is_backward[start]:
            found.append((start, BACKWARD))
        else:
            found += cut.between(start, end, starts[at + 2] if at + 2 < len(starts) else count, at > 0)
    return Phases(
        np.array([start for start, _ in found], np.int64),
        np.array([phase for _, phase in found], np.uint8),
        count,
    )


def _backward(history: DeviceHistory, stacks: CallStacks) -> npt.NDArray[np.bool_] | None:
    """Events of autograd's thread; None where the recording does not tell threads apart."""
    events = history.events
    if history.passes is not None:
        return _carried_on(history.passes == BACKWARD_PASS, history.passes != SILENT_PASS)
    thread = stacks.threads[events.stack]
    births = events.at(ALLOC)
    if not (thread[births] == MAIN).any():
        return None
    frees = events.at(FREE_REQUESTED, FREE_COMPLETED)
    # Where only allocations have stacks, a free without one says nothing. It goes with what came before:
    # backward makes something before it frees the first activation.
    telling = births | frees if (thread[frees] != NO_PYTHON).any() else births
    return _carried_on(thread != MAIN, telling & (thread != OTHER_THREAD))


def _carried_on(of: npt.NDArray[np.bool_], telling: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """What the last event says that tells; of those in front, what the first such says."""
    last = np.maximum(np.cumsum(telling) - 1, 0)  # of those that tell, by number
    found: npt.NDArray[np.bool_] = of[np.flatnonzero(telling)[last]]
    return found


def _within(time: I64, marked: tuple[Marked, ...], device: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(time), np.bool_)
    for one in marked:
        if one.device == device and one.name.startswith(STEP_MARK):
            found |= (time >= one.start) & (time <= one.end)
    return found


class _Cut:
    """Cuts what lies between two backward passes."""

    def __init__(
        self,
        lives: Lives,
        stacks: CallStacks,
        stack: npt.NDArray[np.int32],
        updating: npt.NDArray[np.bool_],
        count: int,
    ) -> None:
        self._stacks, self._stack, self._updating = stacks, stack, updating
        order = np.argsort(lives.born, kind="stable")
        self._born, self._died = lives.born[order], lives.died[order]
        self._count = count
        self._forward_stacks: set[int] = set()

    def between(self, start: int, end: int, after: int, follows: bool) -> list[tuple[int, int]]:
        """From the backward before it, if it `follows` one, to the one after it, which ends at `after`."""
        forward = self._forward_start(start, end, after, follows)
        self._forward_stacks |= set(self._stack[forward:end].tolist()) if end < self._count else set()
        first = OPTIMIZER if follows or self._updating[start:forward].any() else SET_UP
        return [
            (at, phase) for at, phase, to in ((start, first, forward), (forward, FORWARD, end)) if at < to
        ]

    def _forward_start(self, start: int, end: int, after: int, follows: bool) -> int:
        updates = np.flatnonzero(self._updating[start:end])
        if len(updates):
            return start + int(updates[-1]) + 1
        if end < self._count:  # up to the next backward: its first activation
            born, died = self._born, self._died
            mine = slice(*np.searchsorted(born, (start, end)).tolist())
            kept = born[mine][(died[mine] >= end) & (died[mine] < after)]
            return int(kept[0]) if len(kept) else start
        if follows:  # the last backward is over: a forward is known by what an earlier one did
            again = np.flatnonzero(np.isin(self._stack[start:end], list(self._forward_stacks)))
            return start + int(again[0]) if len(again) else end
        calls = np.flatnonzero(self._stacks.calls_module[self._stack[start:end]])
        return start + int(calls[0]) if len(calls) else start
