"""What autocast makes of each tensor of the forward passes: in sixteen bits, in fp32, or both.

A product or a convolution reads and writes sixteen bits: what it reads is cast, and backward keeps the cast
copy. An op of torch's list of fp32 reads and writes fp32: where its backward needs what it read, it keeps a
copy in fp32, and nobody the original. Any other op writes what it reads. A gradient has the format of what it
is the gradient of.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile

import numpy as np

from findwall.memory.autocast_ops import (
    ADDS,
    ADDS_INTO,
    CROSS_ENTROPY,
    FILLED,
    KEEPS_ITS_INPUT,
    KEEPS_ITS_RESULT,
    LOG_SOFTMAX,
    MASKED,
    NARROW,
    NARROW_IN_BACKWARD,
    NLL_BACKWARD,
    RESIZES,
    STATISTICS,
    WHOLE_NUMBERS,
    WIDE,
    WIDE_IN_BACKWARD,
    WIDE_ON_DEVICES,
    WITH_INDICES,
    named,
)
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import ACTIVATIONS, STATE, TEMPORARIES
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool
from findwall.model.memory_history import HOST, I64, CodeFrame

FLOAT_BYTES, INDEX_BYTES = 4, 8  # beside a mask of one byte


class ForwardFormats:
    """Which lives of the forward passes autocast makes narrow: each as its op says, or as what it was made
    of, which is most likely the latest that is as large."""

    def __init__(self, facts: DeviceMemoryFacts) -> None:
        self._facts, self._lives = facts, facts.walk.lives
        count = len(self._lives)
        self.narrow: Bool = np.zeros(count, np.bool_)
        self.counts: Bool = np.zeros(count, np.bool_)  # whole numbers and masks: of no format
        self.made_wide: Bool = np.zeros(count, np.bool_)  # in fp32, though what backward keeps of it is not
        self._kept_wide: Bool = np.zeros(count, np.bool_)  # backward has a copy in fp32
        self._more: list[tuple[int, int, int]] = []
        self._on_host = facts.history.device == HOST
        self.ops = {stack: named(facts.stacks.ops(stack)) for stack in np.unique(self._lives.stack).tolist()}
        passing = np.isin(facts.kinds, (TEMPORARIES, STATE)) & (facts.born_in != FORWARD)
        rows = np.flatnonzero((self._lives.born >= 0) & (facts.born_in != BACKWARD) & ~passing)
        self._rows = rows[np.argsort(self._lives.born[rows], kind="stable")]
        self._place = {row: place for place, row in enumerate(self._rows.tolist())}
        self._python: dict[int, list[CodeFrame]] = {}
        losses = [stack for stack, ops in self.ops.items() if ops & NLL_BACKWARD]
        self._losses = self._lives.born[np.isin(self._lives.stack, losses)]
        self._find_counts()
        self._alike: dict[int, list[int]] = defaultdict(list)
        self._there: list[int] = []  # the latest that have a format
        for row in self._rows.tolist():
            self._make(row)

    def shares(self) -> dict[tuple[str, int], float]:
        """Of each op and size how much of what it made is narrow, and of each size under no op's name."""
        made: dict[tuple[str, int], list[bool]] = defaultdict(list)
        for row in self._rows.tolist():
            size = int(self._lives.asked[row])
            for name in ("", *self._of(row)):
                made[name, size].append(bool(self.narrow[row] and not self.made_wide[row]))
        return {key: sum(ones) / len(ones) for key, ones in made.items()}

    def also(self) -> tuple[I64, I64, I64]:
        """What is there beside them; less than nothing where an original is gone."""
        born, died, asked = np.array(self._more or np.zeros((0, 3)), np.int64).T
        return born, died, asked

    def _of(self, row: int) -> frozenset[str]:
        return self.ops[int(self._lives.stack[row])]

    def _find_counts(self) -> None:
        """Whole numbers by their op; of dropout's two results the mask, of pooling's the indices."""
        asked, rows = self._lives.asked, self._rows.tolist()
        for before, row in zip([-1, *rows], rows, strict=False):
            own = self._of(row)
            self.counts[row] |= bool(own & WHOLE_NUMBERS)
            both = own & self._of(before) if before >= 0 else frozenset()
            if both & MASKED and asked[before] == FLOAT_BYTES * asked[row]:
                self.counts[row] = True
            elif both & MASKED and asked[row] == FLOAT_BYTES * asked[before]:
                self.counts[before] = True
            elif both & WITH_INDICES and FLOAT_BYTES * asked[row] == INDEX_BYTES * asked[before]:
                self.counts[row] = True

    def _make(self, row: int) -> None:
        lives = self._lives
        ops = self._of(row)
        same = self._alike[int(lives.asked[row])]
        same[:] = [one for one in same if lives.died[one] > lives.born[row]]
        source = same[-1] if same else self._latest(row)
        if self.counts[row]:
            pass
        elif ops & NARROW:
            self.narrow[row] = True
            self._cast_input(row)
        elif same and self.counts[source]:
            self.counts[row] = True
        elif self._writes_wide(ops):
            self._widen_input(row, self._latest(row) if ops & RESIZES else source)
        else:
            is_wide = ops & ADDS and any(not self.narrow[one] and not self._is_made_wide(one) for one in same)
            self.narrow[row] = source >= 0 and bool(self.narrow[source]) and not is_wide
            if ops & ADDS_INTO and not self.narrow[row]:
                self._widen_input(row, self._latest(row))
        same.append(row)
        if not self.counts[row] and not ops & FILLED and not self._is_statistic(row):
            self._there.append(row)

    def _writes_wide(self, ops: frozenset[str]) -> bool:
        if self._on_host:
            return bool(ops & WIDE)
        return bool(ops & (WIDE | WIDE_ON_DEVICES)) and not (CROSS_ENTROPY in ops and ops & LOG_SOFTMAX)

    def _latest(self, row: int) -> int:
        """The latest tensor that is still there."""
        lives = self._lives
        while self._there and lives.died[self._there[-1]] <= lives.born[row]:
            self._there.pop()
        return self._there[-1] if self._there else -1

    def _is_statistic(self, row: int) -> bool:
        """A mean or a deviation that a norm makes beside its result."""
        latest = self._latest(row)
        both = self._of(row) & self._of(latest) if latest >= 0 else frozenset()
        return bool(both & STATISTICS) and self._lives.asked[row] < self._lives.asked[latest]

    def _is_made_wide(self, row: int) -> bool:
        return bool(self._of(row) & (WIDE | WIDE_ON_DEVICES))

    def _cast_input(self, row: int) -> None:
        """What the op reads is cast first; backward keeps the copy, and the original if another reads it."""
        lives, given = self._lives, self._latest(row)
        if given < 0 or self.narrow[given]:
            return
        own = self._of(given)
        born, size = int(lives.born[row]), int(lives.asked[given])
        if self._is_kept_for_backward(given) and not own & KEEPS_ITS_RESULT and not own & ADDS:
            self.narrow[given] = self.made_wide[given] = True
            self._more.append((int(lives.born[given]), self._held(given, row), size))
        else:
            self._more.append((born, int(lives.died[row]), size // 2))

    def _is_kept_for_backward(self, row: int) -> bool:
        """Also for one that never comes: what a module made then stays until its result is given up."""
        if self._facts.kinds[row] == TEMPORARIES:
            return False
        in_module = self._facts.stacks.calls_module[self._lives.stack[row]]
        return bool(in_module or self._facts.kinds[row] == ACTIVATIONS)

    def _held(self, given: int, row: int) -> int:
        """Until when a caller holds what it gave: until the call returns in which the op reads it, which is
        the first that the op has on its stack, and what made the tensor has not."""
        lives = self._lives
        made, read = self._calls(given), self._calls(row)
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(made, read, strict=False))
        call = read[: sum(1 for _ in alike) + 1]
        for after in self._rows[self._place[row] :].tolist():
            if self._calls(after)[: len(call)] != call or lives.born[after] > lives.died[given]:
                return int(lives.born[after])
        return int(lives.born[row]) + 1

    def _end_of_loss(self, row: int) -> int:
        """When backward has been through the loss that is computed here."""
        after = self._losses > self._lives.born[row]
        return int(self._losses[after].min()) + 1 if after.any() else self._facts.phases.count

    def _calls(self, row: int) -> list[CodeFrame]:
        """Of Python, the outermost first."""
        stack = int(self._lives.stack[row])
        if stack not in self._python:
            self._python[stack] = self._facts.stacks.python(stack)[::-1]
        return self._python[stack]

    def _widen_input(self, row: int, given: int) -> None:
        """What an op of the list of fp32 reads is cast first; backward keeps the copy if it is needed."""
        lives, ops = self._lives, self._of(row)
        if self._on_host or given < 0 or not self.narrow[given] or self.made_wide[given]:
            return
        if self._kept_wide[given]:
            return
        born, died, size = int(lives.born[row]), int(lives.died[given]), int(lives.asked[given])
        if not (ops & (KEEPS_ITS_INPUT | ADDS_INTO) and self._is_kept_for_backward(given)):
            self._more.append((born, born + 1, size))
            return
        self._kept_wide[given] = True
        self._more.append((born, self._end_of_loss(row) if CROSS_ENTROPY in ops else died, size))
        if not self._of(given) & KEEPS_ITS_RESULT:
            self._more.append((born + 1, died, -(size // 2)))


class BackwardFormats:
    """Which of what backward makes and gives back is narrow."""

    def __init__(self, facts: DeviceMemoryFacts, forward: ForwardFormats) -> None:
        lives = facts.walk.lives
        passing = (facts.kinds == TEMPORARIES) & (facts.born_in == BACKWARD) & ~facts.sums_in_parts
        self.narrow: Bool = np.zeros(len(lives), np.bool_)
        self._more: list[tuple[int, int, int]] = []
        self._shares, self._on_host = forward.shares(), facts.history.device == HOST
        for row in np.flatnonzero(passing).tolist():
            ops, size = forward.ops[int(lives.stack[row])], int(lives.asked[row])
            is_product = bool(ops & (NARROW | NARROW_IN_BACKWARD)) and not self._on_host
            self.narrow[row] = self._is_narrow(ops, size, is_product)
            if is_product and not self.narrow[row]:
                self._more.append((int(lives.born[row]), int(lives.born[row]) + 1, size // 2))
        self.may_be_narrow: Bool = passing

    def also(self) -> tuple[I64, I64, I64]:
        """A gradient in sixteen bits that is cast to fp32, as what it is the gradient of was cast."""
        born, died, asked = np.array(self._more or np.zeros((0, 3)), np.int64).T
        return born, died, asked

    def _is_narrow(self, ops: frozenset[str], size: int, is_product: bool) -> bool:
        share = self._shares.get(("", size))
        if is_product:
            return share is None or share > MAJORITY_SHARE
        if ops & WIDE_IN_BACKWARD and not self._on_host:
            return False
        for name in ops:
            of_op = self._shares.get((name.partition("_backward")[0], size))
            if "_backward" in name and of_op is not None:
                return of_op > MAJORITY_SHARE
        return share is not None and share > MAJORITY_SHARE
