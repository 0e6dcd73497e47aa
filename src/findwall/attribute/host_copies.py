"""Copies between the host and the device."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.attribute.device_time import matching
from findwall.attribute.facts import Facts
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.structure.copies import DOWNLOAD, PAGEABLE, TELLS_MEMORY, UPLOAD
from findwall.units import ms

# Copied to the host in a step: more than a logged value, as a checkpoint is. Chosen by hand, not calibrated.
BULK_BYTES = 1e6


class Copies(msgspec.Struct, frozen=True):
    """Copies of one direction in the window, a step."""

    ms: float
    nbytes: float
    pageable_ms: float
    told: bool = True  # the names say whether memory is pinned or pageable

    @property
    def pageable(self) -> bool:
        return self.pageable_ms > MAJORITY_SHARE * self.ms


def uploads(facts: Facts) -> Copies:
    return _copies(facts, UPLOAD)


def downloads(facts: Facts) -> Copies:
    return _copies(facts, DOWNLOAD)


def uploaded(facts: Facts) -> I64:
    """The rows of the copies to the device."""
    return _rows(facts, UPLOAD)


def downloaded(facts: Facts) -> I64:
    """The rows of the copies to the host."""
    return _rows(facts, DOWNLOAD)


def _rows(facts: Facts, direction: re.Pattern[str]) -> I64:
    talk = facts.kernels.row[facts.kernels.communication]
    rows = facts.queue.row[~np.isin(facts.queue.row, talk)]  # a collective's own copies are no batch's
    rows = rows[facts.timeline.events.kind[rows] == Kind.MEMCPY]
    found: I64 = rows[matching(facts, rows, direction)]
    return found


def _copies(facts: Facts, direction: re.Pattern[str]) -> Copies:
    events = facts.timeline.events
    rows = _rows(facts, direction)
    pageable = matching(facts, rows, PAGEABLE)
    count = max(facts.steps.count, 1)
    length = events.duration[rows]
    moved = float(np.maximum(events.nbytes[rows], 0).sum())
    return Copies(
        ms=ms(float(length.sum())) / count,
        nbytes=moved / count,
        pageable_ms=ms(float(length[pageable].sum())) / count,
        told=len(rows) == 0 or bool(matching(facts, rows, TELLS_MEMORY).any()),
    )
