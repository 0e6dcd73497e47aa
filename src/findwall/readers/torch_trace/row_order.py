"""One order for the same events, however their file was shuffled or their ids were renumbered."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from findwall.model.events import I32, Kind
from findwall.model.intervals import I64

# Where two rows cover the same time, the one further up encloses the other.
_OUTER_FIRST = (Kind.PYTHON, Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
_NESTING = np.full(256, len(_OUTER_FIRST), np.uint8)
_NESTING[list(_OUTER_FIRST)] = range(len(_OUTER_FIRST))

# What an event is comes before how it was numbered: numbers may differ between equal files.
_BY_CONTENT = ("inputs", "launch", "extra", "nbytes")
_BY_NUMBER = ("device", "stream", "correlation", "external", "sequence", "graph_node")


def canonical_order(columns: dict[str, NDArray[Any]], tables: dict[str, list[Any]]) -> I64:
    """The rows by start, then longest first, then by what they are."""
    order: I64 = np.argsort(columns["start"])
    tied = _tied(order, (columns["start"],))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort(_main_keys(rows, columns, tables)[::-1])]
        tied = _tied(order, tuple(columns[name] for name in ("start", "end", "kind", "name")))
    if len(tied):
        rows = order[tied]
        keys = _main_keys(rows, columns, tables)
        for name in (*_BY_CONTENT, *_BY_NUMBER, "thread"):
            keys.append(_text_rank(name, rows, columns, tables) if name in tables else columns[name][rows])
        order[tied] = rows[np.lexsort(keys[::-1])]
    return order


def _main_keys(
    rows: I64, columns: dict[str, NDArray[Any]], tables: dict[str, list[Any]]
) -> list[NDArray[Any]]:
    kind = columns["kind"][rows]
    name = _text_rank("name", rows, columns, tables)
    return [columns["start"][rows], -columns["end"][rows], _NESTING[kind], kind, name]


def _tied(order: I64, columns: tuple[NDArray[Any], ...]) -> I64:
    """Places whose row equals a neighbour's in all of these columns."""
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        values = column[order]
        same &= values[1:] == values[:-1]
    places: I64 = np.flatnonzero(np.append(same, False) | np.append(False, same))
    return places


def _text_rank(name: str, rows: I64, columns: dict[str, NDArray[Any]], tables: dict[str, list[Any]]) -> I64:
    """Rows ranked by the text behind their id, since ids follow the order of the file."""
    ids, place = np.unique(columns[name][rows], return_inverse=True)
    table = tables[name]
    texts = [table[index] if index >= 0 else None for index in ids]
    by_text = sorted(range(len(ids)), key=lambda i: (texts[i] is not None, texts[i] or ""))
    rank = np.empty(len(ids), np.int64)
    rank[by_text] = np.arange(len(ids))
    ranked: I64 = rank[place]
    return ranked


def first_seen(ids: I32, size: int) -> tuple[I32, list[int]]:
    """Ids renumbered in the order in which they appear; also which old ids are left, in that order."""
    never = len(ids)
    first = np.full(size + 1, never, np.int64)
    first[ids[::-1]] = np.arange(never)[::-1]  # the last writer is the earliest row
    first[size] = never  # -1 wrote here
    kept = np.argsort(first[:size], kind="stable")[: int((first[:size] < never).sum())]
    renumbered = np.full(size + 1, -1, np.int32)
    renumbered[kept] = np.arange(len(kept))
    return renumbered[ids], kept.tolist()
