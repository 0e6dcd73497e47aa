"""Names without end: every distinct one is looked at by dozens of patterns, so a million take minutes.

Recorded traces hold at most 300 distinct names of device rows, and 2,000 in all. Where there are far more,
those that took least time count as one, which no pattern knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import DEVICE_KINDS, Bool
from findwall.model.intervals import I64

# Chosen by hand: more than ten times what was seen, and under a second of patterns each.
MOST_DEVICE_NAMES = 5_000
MOST_HOST_NAMES = 20_000
OTHERS = "(one of many other names)"


def fold_names(columns: dict[str, NDArray[Any]], names: list[str]) -> list[str]:
    """Make the names that took least one; what was done, as notes."""
    if len(names) <= MOST_DEVICE_NAMES:
        return []
    on_device = np.isin(columns["kind"], np.array(DEVICE_KINDS, np.uint8))
    notes = []
    for mask, most, whose in (
        (on_device, MOST_DEVICE_NAMES, "device"),
        (~on_device, MOST_HOST_NAMES, "host"),
    ):
        folded, distinct = _least(columns, names, mask, most)
        if folded is None:
            continue
        columns["name"][mask & folded[columns["name"]]] = len(names)
        names.append(OTHERS)
        notes.append(
            f"The {whose}'s rows bear {distinct:,} distinct names: the {distinct - most:,} that took least "
            "time count as one, of unknown work."
        )
    return notes


def _least(
    columns: dict[str, NDArray[Any]], names: list[str], mask: Bool, most: int
) -> tuple[Bool | None, int]:
    """Which names to fold, and how many there are; equal ones by their text, not by where they stand."""
    rows = columns["name"][mask]
    spent: I64 = np.zeros(len(names), np.int64)
    np.add.at(spent, rows, columns["end"][mask] - columns["start"][mask] + 1)
    used = np.flatnonzero(spent)
    if len(used) <= most:
        return None, len(used)
    least = np.partition(spent[used], len(used) - most)[len(used) - most]
    kept = spent > least
    tied = sorted(np.flatnonzero(spent == least).tolist(), key=names.__getitem__)
    kept[tied[: most - int(kept.sum())]] = True
    return ~kept, len(used)
