"""Small kernels, one for each of many tensors, as one op on a list of them."""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import rows_of
from findwall.attribute.facts import Facts
from findwall.attribute.whatif import free_launches, to_floor
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, Launch, Ready, Scale
from findwall.replay.curves import curves
from findwall.units import NOT_ZERO_NS

# Times the floor that a pass over large tensors takes in a list. Measured on an H200: AdamW over eight
# matrices of 134 MB took 11.9 ms in lists and 10.0 ms one by one, where its passes must take 9.9.
LARGE_IN_LISTS = 1.18


def lists_at_best(facts: Facts, atoms: I64) -> Change:
    """The same bytes as fast as memory has them, in launches that cost nothing."""
    ready = Change((Ready(rows_of(facts, atoms), turn=0.0),))
    return to_floor(facts, atoms, passes_ns(facts, atoms)) + free_launches(facts, atoms) + ready


def passes_ns(facts: Facts, atoms: I64) -> F64:
    """What each kernel's own bytes must take, ns; NaN unknown."""
    index = facts.atoms.index[atoms]
    share = facts.atoms.own[atoms] / np.maximum(facts.kernels.duration[index], 1)
    found: F64 = facts.kernels.floor[index] * share
    return found


def in_lists(facts: Facts, atoms: I64) -> Change:
    """The same bytes, large ones more slowly than one by one, small ones without a start for each."""
    index = np.unique(facts.atoms.index[atoms])
    rows = facts.kernels.row[index]
    least = facts.kernels.floor[index] * LARGE_IN_LISTS
    factor = np.nan_to_num(least / np.maximum(facts.kernels.duration[index], NOT_ZERO_NS), nan=1.0)
    share = curves().host["foreach of for-loop"]
    return Change((Scale(rows, factor), Launch(rows, share), Ready(rows, turn=0.0)))
