"""Memory that torch asks the driver for and gives back inside the step, and why."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import matching
from findwall.attribute.facts import Facts
from findwall.attribute.waits import in_window
from findwall.model.events import Kind
from findwall.model.machine import UNCACHED
from findwall.structure.host import ALLOCATOR

_GIVES_BACK = re.compile("free|unmap|release", re.IGNORECASE)


def driver_calls(facts: Facts) -> dict[str, float]:
    """Calls to the driver's allocator, a step, most frequent first."""
    rows = in_window(facts, facts.timeline.rows(Kind.RUNTIME))
    rows = rows[matching(facts, rows, ALLOCATOR)]
    names, counts = np.unique(facts.timeline.events.name[rows], return_counts=True)
    found = {
        facts.timeline.names[int(name)]: count / facts.steps.count
        for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def given_back(calls: dict[str, float]) -> float:
    """How often a step gives memory back, of `driver_calls`."""
    return sum(count for name, count in calls.items() if _GIVES_BACK.search(name))


def cache_switched_off(facts: Facts) -> str | None:
    """What to do where nobody empties the cache because there is none: the environment switched it off."""
    found = [one for one in facts.run.environment.findings if one.id == UNCACHED]
    return found[0].fix if found else None
