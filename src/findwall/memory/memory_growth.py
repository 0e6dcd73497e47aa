"""Memory that grows with every step, by the line that makes it."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.memory.device_memory import DeviceMemoryFacts

FEWEST_STEPS = 4  # the first makes what stays (an optimizer's state), what the last made may yet be freed
LEAST_BYTES = 1 << 20  # a step: less needs ten thousand steps for ten GiB


class Growing(msgspec.Struct, frozen=True):
    line: int  # -1: nobody knows it
    bytes_per_step: int
    steps: int
    kind: int


def growth(facts: DeviceMemoryFacts) -> list[Growing]:
    """Lines that in every step make something that is never freed; the most first.

    A recording of fewer steps shows none: what the first step makes may stay for ever, and that is all.
    """
    starts = facts.backward_starts
    steps = len(starts) - 2
    if len(starts) < FEWEST_STEPS:
        return []
    lives = facts.walk.lives
    of, _ = facts.lines
    step = np.searchsorted(starts, lives.born, side="right") - 1
    stays = (lives.died >= facts.phases.count) & (step >= 0) & (step < steps)
    found = []
    for line in np.unique(of[stays]).tolist():
        mine = stays & (of == line)
        made = np.bincount(step[mine], lives.asked[mine], steps)
        grown = int(np.median(made))
        if made.all() and grown >= LEAST_BYTES:
            kinds = np.bincount(facts.kinds[mine], lives.asked[mine])
            found.append(Growing(line, grown, steps, int(kinds.argmax())))
    return sorted(found, key=lambda one: -one.bytes_per_step)
