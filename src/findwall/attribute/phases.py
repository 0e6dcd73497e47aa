"""The step seen from the other side: loader, copy, forward, backward, comms, optimizer, and by module."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.facts import Facts
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64, union
from findwall.structure.copies import DOWNLOAD, UPLOAD
from findwall.structure.host import rows_matching
from findwall.structure.links import nearest
from findwall.structure.parameter_updates import updates_begin
from findwall.units import NOT_ZERO_NS

PHASES = ("loader", "copy", "forward", "backward", "comms", "optimizer", "other")
# Idle time that is a phase of its own, whatever the device does next.
_IDLE_PHASE = {
    "loader-starved": "loader",
    "copy-exposed": "copy",
    "exposed-collective": "comms",
    "pipeline-bubble": "comms",
}
# Idle time in which the host did something of its own: outside of the model's modules it is no phase of it.
_HOSTS_OWN = ("host-work", "gc-pause")
_MODULE = re.compile(r"^nn\.Module: ")
OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#|^## optimizer", re.IGNORECASE)


def split_by_phase(facts: Facts) -> dict[str, float]:
    """Nanoseconds of the step in each phase; they sum to the step."""
    total = np.zeros(len(PHASES))
    rows = facts.kernels.row[facts.atoms.index]
    total += np.bincount(_phase_of(facts, rows), facts.own, minlength=len(PHASES))
    busy = total.sum()
    total *= facts.reading.likely.busy / busy if busy > 0 else 0.0
    total += _idle_by_phase(facts)
    # Idle time whose gap is unknown; rounding aside.
    total[PHASES.index("other")] += max(facts.step - float(total.sum()), 0.0)
    return {phase: float(total[at]) for at, phase in enumerate(PHASES)}


def _idle_by_phase(facts: Facts) -> F64:
    """Idle time belongs to what the device waited for; a host busy loading is in the loader."""
    likely = facts.reading.likely
    total = np.zeros(len(PHASES))
    phase = _phase_of(facts, likely.gaps.row)
    known = likely.idle.total - likely.left_over - likely.idle["unstable-steps"]
    scale = known / max(likely.gaps.idle.total, NOT_ZERO_NS)
    outside = np.where(_in_module(facts, likely.gaps.row), phase, PHASES.index("other"))
    columns = [*likely.gaps.before.items(), ("turn-around", likely.gaps.turning)]
    for cause, amounts in columns:
        if cause in _IDLE_PHASE:
            total[PHASES.index(_IDLE_PHASE[cause])] += amounts.sum() * scale
        else:
            where = outside if cause in _HOSTS_OWN else phase
            total += np.bincount(where, amounts * scale, minlength=len(PHASES))
    return total


def _phase_of(facts: Facts, rows: I64) -> I64:
    """The phase each device row was launched in."""
    events, links = facts.timeline.events, facts.links
    launch = links.launch[rows]
    safe = np.maximum(launch, 0)
    issued = events.start[safe]
    # Without any op nothing tells the passes apart.
    first = "forward" if events.is_kind(Kind.OP).any() else "other"
    phase = np.full(len(rows), PHASES.index(first), np.int64)
    phase[links.backward[safe]] = PHASES.index("backward")
    updates = np.isin(rows, facts.kernels.row[facts.kernels.own_update])
    phase[updates | _within(facts, issued)] = PHASES.index("optimizer")
    loading = facts.host.activities["loader-starved"]
    phase[loading.covered_within(issued, issued + 1) > 0] = PHASES.index("loader")
    copies = events.kind[rows] == Kind.MEMCPY
    across = facts.timeline.named(UPLOAD, rows[copies]) | facts.timeline.named(DOWNLOAD, rows[copies])
    phase[copies & across[events.name[rows]]] = PHASES.index("copy")
    phase[np.isin(rows, facts.kernels.row[facts.kernels.communication])] = PHASES.index("comms")
    phase[launch < 0] = PHASES.index("other")
    return phase


def _in_module(facts: Facts, rows: I64) -> Bool:
    """Device rows that the model's code launched, as far as the trace has Python's frames."""
    launch = facts.links.launch[rows]
    frames = (
        facts.timeline.events.is_kind(Kind.PYTHON) & facts.timeline.named(_MODULE)[facts.timeline.events.name]
    )
    if not frames.any():
        return np.zeros(len(rows), bool)
    inside: Bool = nearest(facts.timeline, facts.links.parent, frames)[np.maximum(launch, 0)] >= 0
    return inside & (launch >= 0)


def _within(facts: Facts, at: I64) -> Bool:
    """Times inside an optimizer range, a closure that it calls left out."""
    events = facts.timeline.events
    rows = facts.timeline.rows(Kind.ANNOTATION, Kind.OP)
    if len(rows) == 0:
        return np.zeros(len(at), bool)
    rows = rows_matching(facts.timeline, rows, OPTIMIZER)
    ranges = union(updates_begin(facts.timeline, facts.links, rows), events.end[rows])
    return ranges.covered_within(at, at + 1) > 0


def split_by_module(facts: Facts, most: int = 20) -> dict[str, float]:
    """Device time by module where the trace recorded a hierarchy; empty otherwise."""
    ops = facts.kernels.op[facts.atoms.index]
    extras = np.where(ops >= 0, facts.timeline.events.extra[np.maximum(ops, 0)], -1)
    total: dict[str, float] = {}
    for extra_id in np.unique(extras[extras >= 0]).tolist():
        extra = facts.timeline.details.extra_of(extra_id)
        if extra is not None and extra.module:
            spent = float(facts.own[extras == extra_id].sum())
            total[extra.module] = total.get(extra.module, 0.0) + spent
    return dict(sorted(total.items(), key=lambda item: -item[1])[:most])
