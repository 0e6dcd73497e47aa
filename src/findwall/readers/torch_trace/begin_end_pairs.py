"""Begin and end entries joined into rows that last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import I32, U8, Bool
from findwall.model.intervals import I64


def pair_edges(
    time: I64, thread: I32, name: I32, kind: U8, begins: Bool
) -> tuple[dict[str, NDArray[Any]], int, int]:
    """Rows for the pairs that close properly, the number of begins and the number of ends."""
    order = np.lexsort((begins, time, thread))
    pairs: list[tuple[int, int]] = []
    stack: list[int] = []
    current = None
    for index in order.tolist():
        if thread[index] != current:
            current, stack = thread[index], []
        if begins[index]:
            stack.append(index)
        elif stack:
            pairs.append((stack.pop(), index))
    first = np.array([a for a, _ in pairs], np.int64)
    last = np.array([b for _, b in pairs], np.int64)
    rows: dict[str, NDArray[Any]] = {
        "start": time[first],
        "end": time[last],
        "thread": thread[first],
        "name": name[first],
        "kind": kind[first],
    }
    return rows, int(begins.sum()), int((~begins).sum())
