"""Device time of some atoms: what it is, of which class and name they are."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.facts import Facts
from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.units import NOT_ZERO_NS, ms


def time_of(facts: Facts, atoms: I64) -> float:
    """In ms a step."""
    return ms(float(facts.own[atoms].sum()))


def of_class(facts: Facts, *names: str) -> Bool:
    """Which atoms are of these kernel classes."""
    wanted = [KERNEL_CLASSES.index(name) for name in names]
    return np.isin(facts.kernels.class_index[facts.atoms.index], wanted)


def small_kernels(facts: Facts) -> float:
    """Device rows a step."""
    return float(facts.weight.sum()) / max(facts.steps.count, 1)


def too_small_share(facts: Facts) -> float:
    """Of the step: kernels that are over before they use the device."""
    return time_of(facts, facts.atoms.of("launch-bound")) / max(ms(facts.step), NOT_ZERO_NS)


def busy_share(facts: Facts) -> float:
    return facts.reading.likely.busy / facts.step if facts.step > 0 else 0.0


def rows_of(facts: Facts, atoms: I64) -> I64:
    """The device rows of some atoms."""
    return facts.kernels.row[facts.atoms.index[atoms]]


def matching(facts: Facts, rows: I64, pattern: re.Pattern[str]) -> Bool:
    """Which of these rows have such a name; each distinct name is looked at once."""
    distinct, inverse = np.unique(facts.timeline.events.name[rows], return_inverse=True)
    hits = np.array([bool(pattern.search(facts.timeline.names[at])) for at in distinct.tolist()], bool)
    return hits[inverse.reshape(-1)]
