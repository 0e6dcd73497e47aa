"""What probes say of a step with fixes made: the ops that were run as the fixes would run them.

What counts is how much longer or shorter an op got between two probes, as it is and as it will be: clocks and
caches, which a probe meets in another state than the job, cancel out.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.casts import cast_ns
from findwall.attribute.device_time import rows_of
from findwall.attribute.facts import Facts
from findwall.attribute.padding import padding_ns
from findwall.attribute.probing import COMPILERS, NARROW, as_is, units, variant
from findwall.attribute.units import Made, Unit
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64, I64
from findwall.model.probes import Probes
from findwall.replay.change import Change, Replace


class Probed(msgspec.Struct, frozen=True):
    """The rows that probes tell the time of, ns each."""

    rows: I64
    ns: F64
    instead: I64  # rows that go because an op that was probed does their work

    @property
    def change(self) -> Change:
        return Change((Replace(self.rows, self.ns),)) if len(self.rows) else Change()


NOTHING_PROBED = Probed(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def probed(facts: Facts, made: Made) -> Probed:
    """All that probes know of the step with some fixes made."""
    probes = facts.run.probes
    if probes is None:
        return NOTHING_PROBED
    rows, ns = [], []
    kinds = set()
    for unit in _standing(units(facts), made):
        each = _each_ns(facts, unit, made, probes)
        if each is None:
            continue
        share = np.where(unit.carries, facts.timeline.events.duration[unit.rows], 0).astype(np.float64)
        rows.append(unit.rows)
        kinds.add(unit.kind)
        ns.append(each * unit.calls * share / max(float(share.sum()), 1.0))
    if not rows:
        return NOTHING_PROBED
    written_out = facts.atoms.of("unfused-attention") if "attention" in kinds else np.zeros(0, np.int64)
    return Probed(np.concatenate(rows), np.concatenate(ns), rows_of(facts, written_out))


def far_off(facts: Facts) -> list[str]:
    """Ops that took another time as they are when they were probed than in the job."""
    probes = facts.run.probes
    return [unit.op for unit in units(facts) if _is_off(facts, unit, probes)] if probes is not None else []


def _is_off(facts: Facts, unit: Unit, probes: Probes) -> bool:
    """Whether the op took half the time, or twice, when it was probed: it was not run as the job does."""
    before = probes.of(unit.op, unit.inputs, as_is(facts, unit))
    return before is not None and not MAJORITY_SHARE <= before / _now_ns(facts, unit) <= 1 / MAJORITY_SHARE


def _standing(found: list[Unit], made: Made) -> list[Unit]:
    """Without the products of attention that is written out, where a fused kernel takes their place."""
    if "sdpa" not in made:
        return [unit for unit in found if unit.kind != "attention"]
    gone = [unit.rows for unit in found if unit.kind == "attention"]
    rows = np.concatenate(gone) if gone else np.zeros(0, np.int64)
    return [unit for unit in found if unit.kind == "attention" or not np.isin(unit.rows, rows).any()]


def _each_ns(facts: Facts, unit: Unit, made: Made, probes: Probes) -> float | None:
    """How long one call takes with the fixes made; None: it stays as it is, or nobody probed it."""
    now, then = as_is(facts, unit), variant(facts, unit, made)
    after = probes.of(unit.op, unit.inputs, then)
    if then == now or after is None:
        return None
    before = probes.of(unit.op, unit.inputs, now)
    ratio = 1.0 if before is None or _is_off(facts, unit, probes) else _now_ns(facts, unit) / before
    return after * ratio + _beside(facts, unit, made)


def _now_ns(facts: Facts, unit: Unit) -> float:
    """What one call takes in the trace."""
    return max(float(facts.timeline.events.duration[unit.rows].sum()) / unit.calls, 1.0)


def _beside(facts: Facts, unit: Unit, made: Made) -> float:
    """What comes with a product as a fix runs it: the cast of a weight that autocast puts beside it, which
    compiled code folds in; the copies that a compiler pads it with."""
    if unit.kind not in ("product", "conv"):
        return 0.0
    at = int(np.flatnonzero(facts.kernels.row == unit.rows[0])[0])
    atom = np.flatnonzero(facts.atoms.index == at)[:1]
    if made & COMPILERS:
        pads = "pad-shapes" not in made and np.isin(atom, facts.atoms.of("misaligned-shapes")).any()
        return float(padding_ns(facts, atom)[0]) if pads else 0.0
    return float(cast_ns(facts, atom)[0]) if unit.wide and made & NARROW.keys() else 0.0
