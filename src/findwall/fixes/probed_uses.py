"""What a fix gives where both forms of its rewrite were run on the device: measured, or not said at all."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.fixes import Claim, Likely, Made, NoUse, Outcome, Use
from findwall.model.catalogue import NEARLY_ALL
from findwall.model.intervals import I64
from findwall.probe.probed_rewrites import Timed, timed
from findwall.replay.change import Change, Scale
from findwall.replay.graph import Graph
from findwall.replay.rewiring import nodes_of
from findwall.units import ms


def as_probed(facts: Facts, outcome: Outcome) -> Outcome:
    """The same with what probes say of its rewrites: its kernels in all take the measured part of today's
    time, or there is no use in it. As it is where hardly all of them were probed as the job has them."""
    if not isinstance(outcome, Use) or not outcome.rewrites:
        return outcome
    found = [timed(facts, one) for one in outcome.rewrites]
    told = [one for one in found if one is not None]
    whole = sum(float(facts.timeline.events.duration[one.rows].sum()) for one in outcome.rewrites)
    if not told or sum(one.now for one in told) < NEARLY_ALL * whole:
        return outcome
    now, then = sum(one.now for one in told), sum(one.then for one in told)
    if then >= now:
        steps = facts.steps.count
        return NoUse(Claim("rewrite/not-faster", {"now_ms": ms(now / steps), "then_ms": ms(then / steps)}))
    rows = np.unique(np.concatenate([one.rewrite.rows for one in told]))
    return replace(outcome, likely=_measured(facts, told, outcome.likely), may=(), probed=rows)


def _measured(facts: Facts, told: list[Timed], likely: Likely | None) -> Likely:
    """What the fix does to its kernels, at the times that were measured: which of them stay, and what is
    launched for them, is the fix's to say."""

    def change(made: Made) -> Change:
        shape = likely(made) if likely is not None else Change()
        after = shape.apply(facts.graph)
        for one in told:
            rows = one.rewrite.rows
            left = _device_ns(after, rows)
            if left > 0:  # nothing stays of it where the fix says so
                part = one.ratio * _device_ns(facts.graph, rows) / left
                shape += Change((Scale(rows, np.full(len(rows), part)),))
        return shape

    return change


def _device_ns(graph: Graph, rows: I64) -> float:
    nodes, _ = nodes_of(graph, rows)
    return float((graph.own[nodes] * graph.weight[nodes]).sum())
