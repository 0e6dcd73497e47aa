"""What a step does for nothing: gradients that nobody uses, results that nobody reads, what was computed
before in the same step, backward passes that one would do for, what every step computes alike, rows that need
no work, and attention that a mask leaves out.

Told by the graph of the step where there is one. Without one, only gradients are known that are added up and
never taken away (`added_gradients.py`).
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.dataflow.added_gradients import unused_gradients
from findwall.dataflow.grown_rows import new_rows
from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import (
    Flow,
    in_backward,
    iterations,
    judged,
    numbers_in_backward,
    owners,
    rows_under,
)
from findwall.dataflow.masked_attention import under_masks
from findwall.dataflow.padded_rows import filled_rows
from findwall.dataflow.repeated_passes import asked_at, passed_again
from findwall.dataflow.repeats import repeats
from findwall.dataflow.row_ops import elements
from findwall.dataflow.row_work import RowWork, row_work
from findwall.dataflow.usefulness import ACCUMULATES, used_heads, written_unseen
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE, NEARLY_ALL, UNNEEDED
from findwall.model.causes import cause_index
from findwall.model.dataflow import KEPT, LINE, Needless, SparseProduct, Unneeded
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.work.work_facts import WorkFacts

ALL, NOTHING = 1.0, 0.0
FILLS = frozenset({"aten::zeros", "aten::new_zeros", "aten::zeros_like"})
CONVOLUTION_BACKWARD = "aten::convolution_backward"  # (gradient, input, weight, …)


def unneeded(
    facts: WorkFacts, graph: Joined | None, sparse: tuple[SparseProduct, ...] = ()
) -> tuple[Unneeded, ...]:
    """The largest first; each piece of the step is in one of them at most. `sparse`: products with matrices
    of which it is known how much of them is zero."""
    if graph is None:
        added = unused_gradients(facts)
        if added is None:
            return ()
        return (Unneeded("gradients", added.atoms, added.op, 0, "", added.parameters),)
    if written_unseen(graph.flow):
        return ()
    return _by_graph(facts, graph, sparse)


def unused_halves(facts: WorkFacts, graph: Joined) -> Bool:
    """Atoms of convolutions' backward passes that work out both gradients, the weight's for nobody."""
    flow = graph.flow
    observed, used = flow.observed, used_heads(flow)
    op = observed_ops(facts, graph)
    heads = [
        row
        for row in np.unique(op[op >= 0]).tolist()
        if observed.names[int(observed.name[row])] == CONVOLUTION_BACKWARD and used[row]
    ]
    return np.isin(op, [row for row in heads if _is_half_used(flow, used, row)])


def _is_half_used(flow: Flow, used: Bool, head: int) -> bool:
    """Whether nothing that is used reads what it makes of the weight's size, which its input is not of."""
    observed = flow.observed
    given = msgspec.json.decode(observed.given[int(observed.arguments[head])])
    shapes = [
        one[1] for one in given[:3] if isinstance(one, list) and len(one) > 1 and isinstance(one[1], list)
    ]
    if len(shapes) < 3 or math.prod(shapes[1]) == math.prod(shapes[2]):
        return False
    mine = np.flatnonzero(flow.head[flow.wrote] == head)
    regions = observed.region[np.searchsorted(observed.op, flow.wrote[mine]) + flow.place[mine]]
    size = np.array([elements(observed.regions[region]) for region in regions.tolist()], np.int64)
    weight = flow.written[mine[size == math.prod(shapes[2])]]
    both = len(weight) > 0 and bool((size == math.prod(shapes[1])).any())
    reads = np.isin(flow.storage, weight) & (flow.head[flow.reader] != head) & (flow.writer >= 0)
    return both and not used[np.maximum(flow.head[flow.reader[reads]], 0)].any()


def called_from(facts: WorkFacts, graph: Joined, atoms: I64) -> str:
    """The job's own line that most of some atoms come from; empty where nobody knows it."""
    op = observed_ops(facts, graph)[atoms]
    spent = np.bincount(op[op >= 0], facts.atoms.own[atoms][op >= 0], minlength=len(graph.flow.observed))
    return _caller(graph.flow, spent)


def _by_graph(facts: WorkFacts, graph: Joined, sparse: tuple[SparseProduct, ...]) -> tuple[Unneeded, ...]:
    op = observed_ops(facts, graph)
    own = facts.atoms.own
    found: list[Unneeded] = []
    free = op >= 0
    rows = row_work(graph.flow)
    shares = _left(graph.flow, rows)
    lefts = _lefts(facts, graph, op, {kind: left for kind, (left, _) in shares.items()})
    lefts["zeros"] = _with_zeros(len(own), sparse)
    while lefts:
        # One edit may make another needless: what gives most back comes first.
        saved = {kind: float((own * (1.0 - left))[free].sum()) for kind, left in lefts.items()}
        kind = max(lefts, key=lambda one: saved[one])
        if saved[kind] < MENTION_SHARE * own.sum():
            break
        left = lefts.pop(kind)
        atoms = np.flatnonzero(free & (left != 1.0))
        free[atoms] = False
        one = _told(facts, graph, kind, atoms, op[atoms])
        if kind == "zeros":
            one = replace(one, left=left[atoms])
        elif kind in shares:
            one = _of_rows(graph.flow, one, op[atoms], left[atoms], own[atoms], shares[kind][1], rows)
        found.append(one)
    return tuple(sorted(found, key=lambda one: -one.needless(own)))


def _lefts(facts: WorkFacts, graph: Joined, op: I64, by_rows: dict[Needless, F64]) -> dict[Needless, F64]:
    """By what work is needless for: for each atom the share of it that has to be done all the same.
    `by_rows`: that of each row of the graph."""
    flow = graph.flow
    trains = in_backward(flow.observed).any()
    found: dict[Needless, F64] = {}
    for kind, heads in _heads(flow).items():
        mine = (op >= 0) & np.isin(op, heads)
        if kind == "gradients":
            mine |= (op >= 0) & (facts.atoms.cause == cause_index(UNNEEDED))  # halves of them
        if kind == "always" and not trains and len(heads) > NEARLY_ALL * len(_working(flow)):
            continue  # a loop over one input: what would be left of it?
        found[kind] = np.where(mine, NOTHING, ALL)
    for kind, left in by_rows.items():
        found[kind] = np.where(op >= 0, left[op], ALL)
    return found


def _with_zeros(atoms: int, sparse: tuple[SparseProduct, ...]) -> F64:
    """What is left of each atom where products with mostly zeros leave these out, and are shorter by far."""
    left = np.full(atoms, ALL)
    for one in sparse:
        for mine, share in zip((one.forward, one.backward), one.left, strict=True):
            left[mine] = share if share < MAJORITY_SHARE else ALL
    return left


def observed_ops(facts: WorkFacts, graph: Joined) -> I64:
    """The observed op that issued each atom; -1 where nobody knows it."""
    launch = facts.links.launch[facts.kernels.row[facts.atoms.index]]
    return np.where(launch >= 0, graph.op[np.maximum(launch, 0)], -1)


def _working(flow: Flow) -> I64:
    """Rows of the graph that make or change something."""
    return np.intersect1d(judged(flow), flow.head[flow.wrote])


def _heads(flow: Flow) -> dict[Needless, I64]:
    """Rows of the graph, by what they are needless for."""
    observed = flow.observed
    heads, used = judged(flow), used_heads(flow)
    unused = heads[~used[heads]]
    backward = in_backward(observed)
    # Where no gradient at all is used, the update lies outside of what was seen.
    idle = unused[backward[unused]] if used[heads[backward[heads]]].any() else unused[:0]
    again = repeats(flow)
    # Without findwall in the job nobody knows what Python keeps, nor from one iteration what the next reads.
    # And a job that does not train is there for what it gives, whether it looks at that or not.
    told = KEPT in observed.names and backward.any() and iterations(observed).any()
    unread = unused[~backward[unused]] if told else unused[:0]
    return {
        "gradients": idle,
        "unread": unread,
        "always": again.always,
        "twice": np.union1d(again.twice, _gradients_of(flow, again.twice)),
        "passes": passed_again(flow),
    }


def _left(flow: Flow, rows: RowWork) -> dict[Needless, tuple[F64, dict[int, int]]]:
    """For each row of the graph what is left of its work with no row too many, a gradient's as its forward
    op's; and the ops that make the rows so many. What picks or repeats rows does so in any case: behind the
    work, where they are as wide as its results. What is left of places has no gradient for all of them."""
    forward = forward_heads(flow)
    distinct = rows.distinct.copy()
    distinct[list(rows.repeaters)] = 1.0
    distinct[list(rows.carried)] = list(rows.carried.values())
    new, grown_by = new_rows(flow)
    filled, filled_by = filled_rows(flow)
    return {
        "filled": (filled[forward], filled_by),
        "grown": (new[forward], grown_by),
        "dropped": (_with_refills(flow, rows, forward), rows.picks),
        "repeated": (distinct[forward], rows.picks),
        "masked": (under_masks(flow)[0][forward], {}),
    }


def _with_refills(flow: Flow, rows: RowWork, forward: I64) -> F64:
    """What is needed of each row's work; a tensor that a gradient of few places is put into is one, too."""
    observed, needed = flow.observed, rows.needed[forward]
    fills = np.array([name in FILLS for name in observed.names], bool)[observed.name]
    fills = fills[np.maximum(flow.head, 0)] & (flow.head >= 0) & in_backward(observed)
    for row in np.flatnonzero(fills).tolist():
        needed[row] = rows.refills.get(int(forward[row]), needed[row])
    return needed


def forward_heads(flow: Flow) -> I64:
    """For each row its outermost op; for a gradient's that of the forward pass."""
    owner, numbers = owners(flow), numbers_in_backward(flow)
    rows = np.where(flow.head >= 0, flow.head, np.arange(len(flow.head)))
    for row in np.flatnonzero(numbers >= 0).tolist():
        rows[row] = owner.get(int(numbers[row]), int(rows[row]))
    return rows


def _pick(flow: Flow, picks: dict[int, int], op: I64, saved: F64) -> str:
    """The line that picks or repeats rows, for most of what could be saved."""
    observed, by_line = flow.observed, dict[int, float]()
    for head, one in zip(forward_heads(flow)[op].tolist(), saved.tolist(), strict=True):
        line = int(observed.line[picks.get(head, head)])
        by_line[line] = by_line.get(line, 0.0) + one
    best = max(by_line, key=lambda line: by_line[line], default=-1)
    return observed.names[best].removeprefix(LINE) if best >= 0 else ""


def _gradients_of(flow: Flow, heads: I64) -> I64:
    """What the backward pass does for some ops."""
    owner, numbers = owners(flow), numbers_in_backward(flow)
    rows = flow.heads()
    wanted = set(heads.tolist())
    return np.array([row for row in rows.tolist() if owner.get(int(numbers[row]), -1) in wanted], np.int64)


def _told(facts: WorkFacts, graph: Joined, kind: Needless, atoms: I64, op: I64) -> Unneeded:
    flow = graph.flow
    spent = np.bincount(op, facts.atoms.own[atoms], minlength=len(flow.observed))
    heads = np.unique(op)
    rows = np.flatnonzero(np.isin(graph.op, [int(np.argmax(spent))]))
    adds = rows_under(flow.observed, ACCUMULATES) if kind == "gradients" else set()
    return Unneeded(
        kind=kind,
        atoms=atoms,
        op=int(rows[0]) if len(rows) else -1,
        ops=len(heads),
        place=(asked_at(flow, heads) if kind == "passes" else "") or _caller(flow, spent),
        gradients=_accumulators(flow, heads, adds),
    )


def _of_rows(
    flow: Flow, one: Unneeded, op: I64, left: F64, own: F64 | I64, picks: dict[int, int], rows: RowWork
) -> Unneeded:
    """With what has to be done of it, and what makes the rows so many."""
    forward = forward_heads(flow)[op]
    if one.kind == "masked":
        return replace(one, left=left, through=under_masks(flow)[1][forward])
    pick = _pick(flow, picks, op, own * (1.0 - left))
    steps = int(iterations(flow.observed).max(initial=0)) + 1
    passes = len(set(picks.values())) / steps if one.kind == "grown" else 0.0
    moved = 0.0
    if one.kind == "dropped":
        heads = np.unique(forward)
        seen = len(np.unique(iterations(flow.observed)[heads]))
        moved = sum(rows.moved.get(head, 0.0) for head in heads.tolist()) / max(seen, 1)
    return replace(one, left=left, near=rows.near[forward], pick=pick, passes=passes, moved=moved)


def _accumulators(flow: Flow, heads: I64, adds: set[int]) -> int:
    nodes = {int(flow.observed.parent[head]) for head in heads.tolist() if head in adds}
    return len(nodes)


def _caller(flow: Flow, spent: I64) -> str:
    """The line whose ops take most of it: for a gradient, that of its forward op."""
    observed = flow.observed
    owner, numbers = owners(flow), numbers_in_backward(flow)
    by_line: dict[int, float] = {}
    for head in np.flatnonzero(spent > 0).tolist():
        forward = owner.get(int(numbers[head]), head) if numbers[head] >= 0 else head
        by_line[int(observed.line[forward])] = by_line.get(int(observed.line[forward]), 0.0) + spent[head]
    best = max(by_line, key=lambda line: by_line[line], default=-1)
    return observed.names[best].removeprefix(LINE) if best >= 0 else ""
