"""Casts there and back: a tensor made wide and narrow again with nothing done to it meanwhile."""

from __future__ import annotations

import numpy as np

from findwall.attribute.workmodel.arguments import Arguments
from findwall.model.events import Bool, Timeline
from findwall.model.intervals import I64

Cast = tuple[int, str, str]  # how many numbers, from which type, to which


def there_and_back(timeline: Timeline, ops: I64, part: I64) -> Bool:
    """Which of some ops, in device order, are such casts: a compiler leaves both out. `part`: the chain that
    each is in."""
    found = np.zeros(len(ops), bool)
    known: dict[tuple[int, int], Cast | None] = {}
    last: Cast | None = None
    for at, op in enumerate(ops.tolist()):
        cast = _cast(timeline, op, known)
        same = at > 0 and part[at] == part[at - 1]
        if same and cast is not None and last == (cast[0], cast[2], cast[1]):
            found[at - 1 : at + 1] = True
            cast = None  # of three in a row, two are a round trip
        last = cast
    return found


def _cast(timeline: Timeline, op: int, known: dict[tuple[int, int], Cast | None]) -> Cast | None:
    if op < 0:
        return None
    key = int(timeline.events.name[op]), int(timeline.events.inputs[op])
    if key not in known:
        known[key] = _read(timeline, op)
    return known[key]


def _read(timeline: Timeline, op: int) -> Cast | None:
    inputs = timeline.inputs_of(op)
    if inputs is None or not timeline.name_of(op).endswith("::copy_"):
        return None
    into, out_of = Arguments(inputs).tensor(0), Arguments(inputs).tensor(1)
    if into is None or out_of is None or into.dtype == out_of.dtype:
        return None
    return into.elements, out_of.dtype, into.dtype
