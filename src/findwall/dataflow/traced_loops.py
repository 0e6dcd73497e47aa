"""Loops of the job's own lines, with what each of their rounds launched in the traced steps."""

from __future__ import annotations

import numpy as np

from findwall.dataflow.joining import Joined
from findwall.dataflow.line_loops import line_loops
from findwall.dataflow.unneeded import forward_heads, observed_ops
from findwall.model.dataflow import LINE, LineLoop
from findwall.work.work_facts import WorkFacts


def traced_loops(facts: WorkFacts, graph: Joined) -> tuple[LineLoop, ...]:
    """The longest first. What the backward pass does for a round is of that round."""
    flow = graph.flow
    op = observed_ops(facts, graph)
    rows, forward = len(flow.observed), forward_heads(flow)
    found = []
    for one in line_loops(flow):
        rounds = one.round_of(rows)
        # A gradient that runs inside a round is of it; one that runs behind the loop is of its forward op's.
        mine = np.where(rounds >= 0, rounds, rounds[forward])
        number = np.where(op >= 0, mine[np.maximum(op, 0)], -1)
        atoms = np.flatnonzero(number >= 0)
        if not len(atoms):
            continue
        heads = flow.head >= 0
        called = np.flatnonzero((graph.op >= 0) & (rounds[np.maximum(graph.op, 0)] >= 0))
        found.append(
            LineLoop(
                rounds=one.count,
                place=flow.observed.names[one.line].removeprefix(LINE),
                atoms=atoms,
                first=number[atoms] == number[atoms].min(),
                calls=called,
                ops=int((heads & (rounds >= 0) & (flow.head == np.arange(rows))).sum()) // one.count,
                parameters=one.parameters,
            )
        )
    return tuple(sorted(found, key=lambda one: -len(one.atoms)))
