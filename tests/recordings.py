"""Recordings as the tests see them: each is read once, and its facts are established once, for all who ask.

A document is kept for all workers of a run of the tests, in a folder that `conftest.py` makes: two tests that
look at different sides of the same document do not read the trace twice. Who asks gets one of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from functools import cache, lru_cache
from pathlib import Path

import findwall
from findwall import api
from findwall.examine import Examined
from findwall.facts.facts import Facts
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.model.events import Timeline
from findwall.model.measured_run import Run
from findwall.readers import read_trace
from sketch import facts_of

KEPT = "FINDWALL_TESTS_KEPT"


@lru_cache(maxsize=64)
def timeline(path: Path) -> Timeline:
    return read_trace(path)


@lru_cache(maxsize=64)
def facts(path: Path, step_ms: float | None = None) -> Facts:
    """Of a trace, with its true step time where that is known."""
    return facts_of(timeline(path), step_ms=step_ms)


@lru_cache(maxsize=16)
def look(path: Path) -> tuple[Run, Examined]:
    """The run and all that is found in it, for who changes nothing of that."""
    return api.look(path)


def document(path: Path) -> Diagnosis:
    """What `findwall read` says of a trace, a folder of ranks or a run folder."""
    return from_json(_document(path))


@cache
def _document(path: Path) -> bytes:
    folder = os.environ.get(KEPT)
    if folder is None:
        return to_json(findwall.read(path))
    kept = Path(folder) / hashlib.sha256(str(path).encode()).hexdigest()
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(to_json(findwall.read(path)))
        return kept.read_bytes()
