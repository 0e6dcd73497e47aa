"""Rows of a table by their numbers: what fetching and adding them takes."""

from __future__ import annotations

import numpy as np

from findwall.units import NS_PER_S
from findwall.work.work_facts import START_NS, WorkFacts

# Of the memory's rate, for what they move: rows of fp32 numbers added with atomics reached 0.37 to 0.42 in
# five jobs on an H200 (0.5 to 10 million rows of 64 to 128 numbers), rows that are fetched 0.25 to 0.39.
ROWS_REACHED = 0.38
FETCHED, ADDED = 2, 3  # times its bytes: a row is read and written; to add one its sum is read as well


def fetching_ns(facts: WorkFacts, row_bytes: float) -> float:
    """What it takes to fetch rows of so many bytes by their numbers."""
    return _rows_ns(facts, FETCHED * row_bytes)


def adding_ns(facts: WorkFacts, row_bytes: float) -> float:
    """What it takes to add rows of so many bytes to others by their numbers, with atomics."""
    return _rows_ns(facts, ADDED * row_bytes)


def _rows_ns(facts: WorkFacts, moved: float) -> float:
    return START_NS + moved / ((facts.ceilings.bandwidth or np.inf) * ROWS_REACHED) * NS_PER_S
