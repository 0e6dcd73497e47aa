"""A replayed graph's kernels beside the launches of its capture: which is which, where only one can be."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.kernel_classes import classify, op_class

Scores = NDArray[np.int32]
STAY_COST = 1  # a second kernel of the same op counts a little less than the first of the next one
_NEVER = np.int32(-(1 << 28))


def align(scores: Scores, alike: I64, several: Bool) -> I64:
    """For each row of `scores` the column it belongs to, or -1.

    Order is kept, and the sum of the scores is as high as it can be; entries may be left out on both sides.
    `several`, by column: neighbouring rows may share it. A row that could as well stand elsewhere, or
    nowhere, gets no column, unless the columns in question have the same number in `alike`.
    """
    rows, columns = scores.shape
    if rows == 0 or columns == 0:
        return np.full(rows, -1, np.int64)
    at, best = _forward(scores, several)
    chosen = _one_way(scores, at, best, several)
    total = int(best[-1, -1])
    after = np.zeros(columns + 1, np.int32)  # best sum of the rows behind, by the first column left to them
    held = np.full(columns, _NEVER, np.int32)  # the same, where the row behind stands at this column
    for row in range(rows - 1, -1, -1):
        onward = np.maximum(after[1:], np.where(several, held - STAY_COST, _NEVER))
        fits = np.flatnonzero((at[row] + onward == total) & (scores[row] > 0))
        nowhere = bool((best[row] + after == total).any())
        if nowhere or len(fits) == 0 or len(np.unique(alike[fits])) > 1:
            chosen[row] = -1
        held = np.maximum(onward + scores[row], _NEVER)
        after = np.maximum(after, np.append(np.maximum.accumulate(held[::-1])[::-1], 0))
    return chosen


def evenly(position: I64, alike: I64, names: I64) -> I64:
    """The same places, but of neighbouring columns that are alike each gets as many rows, if those repeat.

    To the order it is all the same which of them a row belongs to; what a column stands for is done by each.
    """
    found: I64 = position.copy()
    number = np.where(position >= 0, alike[np.maximum(position, 0)], -1)
    cuts = np.flatnonzero(np.diff(number)) + 1
    for run in np.split(np.arange(len(position)), cuts):
        if len(run) == 0 or number[run[0]] < 0:
            continue
        columns = _alike_around(found, alike, run)
        each, left = divmod(len(run), len(columns))
        if each and not left and np.array_equal(names[run], np.tile(names[run[:each]], len(columns))):
            found[run] = columns[np.arange(len(run)) // each]
    return found


def _alike_around(position: I64, alike: I64, run: I64) -> I64:
    """The neighbouring columns that are alike, from which these rows could have any."""
    first, last = int(position[run[0]]), int(position[run[-1]])
    before = position[: run[0]].max(initial=-1)
    behind = position[run[-1] + 1 :]
    after = behind[behind >= 0].min(initial=len(alike))
    while first - 1 > before and alike[first - 1] == alike[first]:
        first -= 1
    while last + 1 < after and alike[last + 1] == alike[last]:
        last += 1
    return first + np.flatnonzero(alike[first : last + 1] == alike[first])


def _forward(scores: Scores, several: Bool) -> tuple[Scores, Scores]:
    """The best sum up to each row if it stands at a column; and of the rows before it, by columns used."""
    rows, columns = scores.shape
    at = np.empty((rows, columns), np.int32)
    best = np.zeros((rows + 1, columns + 1), np.int32)
    held = np.full(columns, _NEVER, np.int32)
    for row in range(rows):
        reached = np.maximum(best[row, :-1], np.where(several, held - STAY_COST, _NEVER))
        held = np.maximum(reached + scores[row], _NEVER)
        at[row] = held
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(best[row, 1:], held))
    return at, best


def _one_way(scores: Scores, at: Scores, best: Scores, several: Bool) -> I64:
    """One of the alignments with the highest sum."""
    chosen = np.full(len(scores), -1, np.int64)
    column = scores.shape[1]  # columns before this one are left
    stays = -1  # the row behind shares this row's column
    for row in range(len(scores) - 1, -1, -1):
        if stays >= 0:
            place = stays
        elif best[row + 1, column] == best[row, column]:
            continue
        else:
            place = int(np.flatnonzero(at[row, :column] == best[row + 1, column])[0])
        chosen[row] = column = place
        before = at[row, place] - scores[row, place]
        shared = row > 0 and several[place] and before == at[row - 1, place] - STAY_COST
        stays = place if shared and before > best[row, place] else -1
    return chosen


# -- how well a kernel fits a captured launch -------------------------------------------------------------


NO_FIT = -(1 << 20)  # outweighs what any sequence of fits can add
SAME_CLASS = 4
IN_NAME = 2  # more, where the op's name is part of the kernel's: `mul` in MulFunctor
BY_PLACE = 1  # a kernel whose name says nothing, at the place of a launch that was counted
_FEWEST_LETTERS = 3  # of an op's name: shorter ones are part of any kernel's
# What an op's library launches beside kernels of the op's own class.
_BESIDE = {"conv": ("matmul", "copy")}


@functools.lru_cache(maxsize=1 << 18)
def affinity(kernel: str, kind: int, op: str | None, captured: str, counted: bool) -> int:
    """Of a kernel to what was captured: an op, a kernel's name ("" unknown), and whether it was a launch."""
    if captured:
        return SAME_CLASS + IN_NAME if captured == kernel else NO_FIT
    if op is None:
        return NO_FIT
    told = classify(kernel, None, Kind(kind))
    wanted = op_class(op)
    named = IN_NAME if _stem(op) in kernel.lower() else 0
    if kind != Kind.KERNEL:
        moves = wanted == "copy" or (kind == Kind.MEMSET and _stem(op) in ("zero", "fill"))
        return SAME_CLASS if moves else NO_FIT
    if told == "other":
        return (BY_PLACE if counted else NO_FIT) if not named else IN_NAME
    if wanted is None:
        return IN_NAME if named else NO_FIT
    if told == wanted or told in _BESIDE.get(wanted, ()):
        return SAME_CLASS + named
    return NO_FIT


@functools.lru_cache(maxsize=1 << 16)
def _stem(op: str) -> str:
    """`add` of `aten::add_`; of short names something that is in no kernel's name."""
    name = op.rpartition("::")[2].strip("_").lower()
    return name if len(name) >= _FEWEST_LETTERS else "\0"
