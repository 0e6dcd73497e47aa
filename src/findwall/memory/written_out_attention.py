"""Attention that is written out: matrices of queries by keys that backward waits for.

It is a product, a softmax of what that gave, and a product that gives less: `softmax(QKᵀ)V`. Told by the ops
on the stacks, so it needs a recording with C++ frames, which is what torch records by default.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_kinds import ACTIVATIONS, TEMPORARIES, WORKSPACE
from findwall.memory.memory_phases import BACKWARD, FORWARD
from findwall.model.events import Bool

PRODUCTS = frozenset(("bmm", "baddbmm", "mm", "addmm"))
SOFTMAX = frozenset(("exp", "_softmax", "softmax_int"))
# Of the product's bytes: the same in another number format, or a mask of it.
SAME_MATRIX = (0.25, 0.5, 1.0, 2.0)
FEWEST = 2  # times a step: a single softmax between two products may be something else


class WrittenOut(msgspec.Struct, frozen=True):
    """Lives that a fused kernel would not have."""

    matrices: Bool  # that backward waits for
    in_backward: Bool  # of the same sizes, while backward works on them
    times: int  # in one forward pass
    line: int  # that holds most of it; -1: nobody knows it


def written_out(facts: DeviceMemoryFacts) -> WrittenOut | None:
    """What of the recording is attention that is written out; None where nothing is."""
    lives = facts.walk.lives
    rows = np.flatnonzero((facts.born_in == FORWARD) & (facts.kinds != WORKSPACE))
    rows = rows[np.argsort(lives.born[rows], kind="stable")]
    found = _regions(facts, rows.tolist())
    firsts = np.array([lives.born[region[0]] for region, _ in found], np.int64)
    times = int(np.bincount(facts.phases.stretch_of(firsts)).max()) if found else 0
    if times < FEWEST:
        return None
    matrices = np.zeros(len(lives), np.bool_)
    sizes = set()
    for region, size in found:
        alike = [row for row in region if lives.asked[row] / size in SAME_MATRIX]
        matrices[alike] = True
        sizes.add(size)
    waited_for = matrices & (facts.kinds == ACTIVATIONS)
    if not waited_for.any():
        return None
    in_backward = (facts.born_in == BACKWARD) & (facts.kinds == TEMPORARIES)
    in_backward &= np.isin(lives.asked, list(sizes))
    of, _ = facts.lines
    total = np.bincount(of[waited_for] + 1, lives.asked[waited_for])
    return WrittenOut(matrices, in_backward, times, int(total.argmax()) - 1)


def _regions(facts: DeviceMemoryFacts, rows: list[int]) -> list[tuple[list[int], int]]:
    """The births from a product up to the next, where a softmax of it lies between and the next gives less;
    and the bytes that the first gave."""
    lives = facts.walk.lives
    ops = {stack: facts.stacks.ops(stack) for stack in np.unique(lives.stack[rows]).tolist()}
    if not any(under_way & SOFTMAX for under_way in ops.values()):
        return []
    found = []
    region: list[int] = []
    has_softmax = False
    for row in rows:
        under_way, size = ops[int(lives.stack[row])], int(lives.asked[row])
        first = int(lives.asked[region[0]]) if region else 0
        if under_way & PRODUCTS and size > 0:
            if has_softmax and size < first:
                found.append((region, first))
            region, has_softmax = [row], False
        elif region:
            region.append(row)
            has_softmax |= bool(under_way & SOFTMAX) and size / first in SAME_MATRIX
    return found
