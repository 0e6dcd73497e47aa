"""Loops of the job's own lines and cells that it writes out, with what they launched in the traced steps."""

from __future__ import annotations

from collections import Counter

import numpy as np

from findwall.dataflow.joining import Joined
from findwall.dataflow.line_loops import line_loops
from findwall.dataflow.linking import Flow, in_backward, iterations, numbers_in_backward
from findwall.dataflow.unneeded import forward_heads, observed_ops
from findwall.dataflow.written_cells import written_cells
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.dataflow import LINE, LineLoop, WrittenCell
from findwall.model.intervals import I64
from findwall.work.work_facts import WorkFacts


def traced_loops(facts: WorkFacts, graph: Joined) -> tuple[LineLoop, ...]:
    """The longest first. What the backward pass does for a round is of that round."""
    flow = graph.flow
    op = observed_ops(facts, graph)
    rows, forward = len(flow.observed), forward_heads(flow)
    recorded = _recorded(flow)
    found = []
    for one in line_loops(flow, _traced(graph)):
        rounds = one.round_of(rows)
        # A gradient that runs inside a round is of it; one that runs behind the loop is of its forward op's,
        # or where it is a gradient's own, of what the engine recorded in a round.
        mine = np.where(rounds >= 0, rounds, rounds[forward])
        mine = np.where(mine >= 0, mine, rounds[recorded])
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
                unseen=one.unseen,
                gradients=_goes_back(flow, rounds),
            )
        )
    return tuple(sorted(found, key=lambda one: -len(one.atoms)))


def _goes_back(flow: Flow, rounds: I64) -> bool:
    """Whether rounds go back through the same ops of one forward pass."""
    heads = flow.heads()
    heads = heads[rounds[heads] >= 0]
    nodes = np.column_stack([numbers_in_backward(flow)[heads], rounds[heads]])
    each = np.unique(nodes[nodes[:, 0] >= 0], axis=0)[:, 0]
    visits = np.unique(each, return_counts=True)[1]
    return int(visits[visits > 1].sum()) > MAJORITY_SHARE * len(each)


def _recorded(flow: Flow) -> I64:
    """For rows that differentiate a gradient the row of the backward pass which recorded what they are of;
    for others themselves. The engine's threads number what they record apart from the job's own."""
    observed = flow.observed
    own = in_backward(observed) & ~observed.is_backward & (observed.sequence >= 0)
    by_number = dict(zip(observed.sequence[own].tolist(), np.flatnonzero(own).tolist(), strict=True))
    if not by_number:
        return np.arange(len(observed))
    numbers = numbers_in_backward(flow).tolist()
    return np.array([by_number.get(number, row) for row, number in enumerate(numbers)], np.int64)


def _traced(graph: Joined) -> list[int]:
    """The iterations that traced steps were found to be like."""
    known = graph.op[graph.op >= 0]
    found: list[int] = np.unique(iterations(graph.flow.observed)[known]).tolist()
    return found


def traced_cell(facts: WorkFacts, graph: Joined) -> WrittenCell | None:
    """Of the kind that has most rounds."""
    numbers, observed = _traced(graph), graph.flow.observed
    runs = written_cells(graph.flow, numbers)
    rounds = Counter[str]()
    for run in runs:
        rounds[run.layer] += run.rounds
    if not rounds:
        return None
    ((layer, count),) = rounds.most_common(1)
    mine = [run for run in runs if run.layer == layer]
    op = observed_ops(facts, graph)
    heads = np.array(sorted(frozenset[int]().union(*(run.heads for run in mine))), np.int64)
    atoms = np.flatnonzero((op >= 0) & np.isin(forward_heads(graph.flow)[op], heads))
    line = int(observed.line[mine[0].first])
    place = observed.names[line].removeprefix(LINE) if line >= 0 else ""
    return WrittenCell(layer, count // len(numbers), place, atoms) if len(atoms) else None
