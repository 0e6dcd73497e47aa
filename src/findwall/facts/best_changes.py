"""What the step would be: what fixes do to it at best, in the simulator's terms, and what stands behind them.

At best a fix takes away everything that it could: kernels run at their floor, launches cost nothing, waits
are gone. The replay then shows what stands behind it, which no sum over causes can.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.facts import Facts, of_class, rows_of
from findwall.facts.op_shapes import under_convolution
from findwall.facts.step_traits import on_cores
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, UNNEEDED, WALLS
from findwall.model.causes import UNKNOWN
from findwall.model.intervals import F64, I64
from findwall.replay import taken_away
from findwall.replay.calibrate import play_with
from findwall.replay.change import Change, HostWork, Launch, NoHostWork, Ready, Scale
from findwall.replay.curves import curves
from findwall.replay.graph import LAUNCHING, Graph
from findwall.units import NOT_ZERO_NS, NS_PER_S
from findwall.work.work_facts import WorkFacts, moving_ns

# On cores what stays runs faster once the rest is gone, which used the same caches: of what is left so much
# less for each part of the step that goes, at the most and likely. Five jobs on two cores of a Xeon lost 0.5
# to 0.85 of their steps, and the rest took 0.5 to 0.9 of what it took before: 0.1 to 0.7 for each part.
WARMER_AT_MOST, WARMER_LIKELY = 0.75, 0.35
WARMER_USUALLY = (0.1, 0.6)  # at least and at most, in four of these five
# Times the memory's rate: what a cache gives at most. Chosen by hand, above what such caches reach.
CACHE_RATIO = 3.0
UNSTABLE = "unstable-steps"


def best_step(facts: Facts, change: Change, moves: tuple[str, ...]) -> float:
    """The step with a change made, ns, on the cheapest host that the true step allows.

    What the replay does not hold stays as it is: time of unknown cause, and rare slow steps, unless those are
    what the change takes away, or may be: steps that were not traced can have had more of what the device
    waits for most.
    """
    likely = facts.reading.likely
    calibration, now = facts.cheapest
    graph = change.apply(facts.graph)
    then = on_warm_cores(facts, graph, play_with(graph, calibration).step, WARMER_AT_MOST)
    saved = facts.of_all_ranks(moves, now.step - then)
    gone = sum(likely.rare.get(cause, 0.0) for cause in moves)
    known = likely.idle.total - likely.idle[UNKNOWN]
    unseen = likely.left_over if likely.idle.of(moves) > MAJORITY_SHARE * known > 0 else 0.0
    # At best a change does no harm: nobody keeps one that does.
    left = (likely.step - saved * likely.shrink - gone - unseen) - by_clock(facts, moves)
    return min(max(left, 0.0) * with_slow_steps(facts, moves), likely.step)


def by_clock(facts: Facts, moves: tuple[str, ...]) -> float:
    """Of the step, ns: what steps add that are slow now and then and of which nothing else is known, where
    these causes are not what they are put down to. What holds a job up so, a crowded host or a slower clock,
    comes by the time and not by the step: a shorter one meets less of it."""
    timed = facts.rank.step_times
    kinds = timed.kinds() if timed is not None else ()
    if UNSTABLE in moves or any(kind.every is not None for kind in kinds):
        return 0.0
    return facts.reading.likely.rare.get(UNSTABLE, 0.0)


def with_slow_steps(facts: Facts, moves: tuple[str, ...]) -> float:
    """Times a step without them: what such steps make of it."""
    return facts.step / max(facts.step - by_clock(facts, moves), NOT_ZERO_NS)


def on_warm_cores(facts: Facts, graph: Graph, step: float, how: float) -> float:
    """The step of a replay, in ns, with this graph in place of a CPU job's own: what is left of what ops and
    the host do between them takes less, as much of it is gone."""
    if not graph.on_cores:
        return step
    before = facts.graph
    works = before.rows[~np.isin(before.row[before.rows], facts.kernels.row[facts.kernels.communication])]
    stays = np.isin(before.row[works], graph.row[graph.rows[graph.own[graph.rows] > 0]])
    host = _host_ns(before)
    left = float(before.own[works[stays]].sum()) + min(_host_ns(graph), host)
    gone = 1.0 - left / max(float(before.own[works].sum()) + host, 1.0)
    return step - how * gone * min(left / graph.steps, step)


def _host_ns(graph: Graph) -> float:
    """What the host does for its steps: neither waiting for other ranks nor making batches, which others can
    do beside it."""
    apart = (*WALLS["comms"], *WALLS["data"])
    others = sum(float(part.length.sum()) for cause, part in graph.parts.items() if cause in apart)
    return float(graph.host.length.sum()) - others


def ideal(facts: Facts, *causes: str) -> Change:
    """All that some causes could give back: their device time at its floor, their idle time gone."""
    return sum((facts.taken_away(cause) for cause in causes), Change())


def to_floor(facts: WorkFacts, atoms: I64, floor: F64 | None = None) -> Change:
    """Device time of some atoms at its floor, or at one that is given, in ns of the trace's own time."""
    return taken_away.to_floor(facts.atoms, facts.kernels, atoms, floor)


def at_math(facts: WorkFacts, atoms: I64, math: str, share_of_bytes: float = 1.0) -> Change:
    """Kernels that multiply, at the ceiling of another number format, on so many of their bytes.

    Nothing changes where no such ceiling is known.
    """
    if math not in facts.ceilings.flops:
        return Change()
    share = facts.atoms.own[atoms] / np.maximum(facts.kernels.duration[facts.atoms.index[atoms]], 1)
    return to_floor(facts, atoms, floor_in(facts, atoms, math, share_of_bytes) * share)


def floor_in(facts: WorkFacts, atoms: I64, math: str, share_of_bytes: float) -> F64:
    """The floor of products in another number format, on so many of their bytes; NaN unknown.

    Without FLOPs the floor that the kernel's name told stands in for them.
    """
    table, index = facts.kernels, facts.atoms.index[atoms]
    least = table.flops[index] / facts.ceilings.flops.get(math, np.nan) * NS_PER_S
    if facts.ceilings.bandwidth:
        least = np.fmax(least, table.bytes[index] * share_of_bytes / facts.ceilings.bandwidth * NS_PER_S)
    return np.where(np.isnan(table.flops[index]), table.better_floor[index], least)


def at_most(facts: WorkFacts, atoms: I64, factor: float) -> Change:
    """Kernels that take so many times as long as now."""
    return to_floor(facts, atoms, facts.atoms.own[atoms] * factor)


def in_another_form(facts: WorkFacts, atoms: I64, nbytes: F64) -> Change:
    """Each of these replaced by what does the same in another form and moves so many bytes, as fast as memory
    has them. On cores nothing need stay: nobody measured how fast caches hand out what was just written."""
    if on_cores(facts):
        return gone(facts, atoms)
    share = facts.atoms.own[atoms] / np.maximum(facts.kernels.duration[facts.atoms.index[atoms]], 1)
    return to_floor(facts, atoms, moving_ns(facts, nbytes) * share)


def as_one_pass(facts: WorkFacts, atoms: I64, nbytes: float) -> Change:
    """The same of all of these together: in their place so many bytes are moved."""
    own = facts.atoms.own[atoms]
    if on_cores(facts) or len(atoms) == 0:
        return gone(facts, atoms)
    least = moving_ns(facts, nbytes)
    return to_floor(facts, atoms, own * min(least / max(float(own.sum()), 1.0), 1.0))


def at_least_bytes(facts: WorkFacts, atoms: I64) -> Change:
    """Kernels replaced by others that do the same as fast as their bytes can be moved.

    Nothing is fused. What fits in the cache may come from there; of unknown work nothing need remain.
    """
    table, index = facts.kernels, facts.atoms.index[atoms]
    share = facts.atoms.own[atoms] / np.maximum(table.duration[index], 1)
    return to_floor(facts, atoms, np.nan_to_num(table.floor[index]) * share / _cache_ratio(facts, atoms))


def as_chains(facts: WorkFacts, atoms: I64) -> Change:
    """Kernels that move bytes as one kernel a chain: at their floor, faster where the cache holds it all."""
    return to_floor(facts, atoms, facts.atoms.floor[atoms] / _cache_ratio(facts, atoms))


def _cache_ratio(facts: WorkFacts, atoms: I64) -> F64:
    """How many times faster than memory what each kernel moves may come."""
    cached = facts.kernels.bytes[facts.atoms.index[atoms]] <= (facts.ceilings.l2_bytes or 0)
    return np.where(cached, CACHE_RATIO, 1.0)


def bare_convolutions(facts: WorkFacts) -> Change:
    """Convolutions at their floor, and nothing beside them: no turning round, no bias of its own."""
    inside = under_convolution(facts)
    multiply = of_class(facts, *MATRIX_CLASSES)
    atoms = np.flatnonzero(inside | of_class(facts, "conv"))
    least = np.where(multiply[atoms], np.nan_to_num(facts.atoms.floor[atoms]), 0.0)
    return to_floor(facts, atoms, least)


def knows_floor(facts: WorkFacts, atoms: I64) -> bool:
    """Whether anything is known of what some kernels must take; of none at all it is."""
    index = facts.atoms.index[atoms]
    known = ~np.isnan(facts.kernels.flops[index]) | ~np.isnan(facts.kernels.better_floor[index])
    return len(atoms) == 0 or bool(known.any())


def gone(facts: WorkFacts, atoms: I64) -> Change:
    """Kernels that are not there any more, nor their launches."""
    return taken_away.dropped(facts.atoms, facts.kernels, atoms)


def left_out(facts: WorkFacts, atoms: I64) -> Change:
    """Work that is not done any more: of kernels that do other work as well their part."""
    return taken_away.left_out(facts.atoms, facts.kernels, atoms)


def free_launches(facts: WorkFacts, atoms: I64 | None = None) -> Change:
    """Launching costs the host nothing: of all kernels, or of some."""
    if atoms is None:
        return Change((HostWork(LAUNCHING, 0.0),))
    rows = np.unique(facts.kernels.row[facts.atoms.index[atoms]])
    return Change((Launch(rows, 0.0),)) if len(rows) else Change()


# -- what stands behind a change -----------------------------------------------------------------------


def roofline_ns(facts: Facts) -> float | None:
    """The step with every kernel at its floor and a device that never waits; None: most is unmodelled."""
    floor = facts.kernels.floor[facts.atoms.index].copy()
    floor[facts.atoms.of(UNNEEDED)] = 0.0
    known = ~np.isnan(floor) & (facts.kernels.duration[facts.atoms.index] > 0)
    if float(facts.own[known].sum()) < MAJORITY_SHARE * float(facts.own.sum()):
        return None
    share = floor[known] / facts.kernels.duration[facts.atoms.index][known]
    return float((facts.own[known] * share).sum() + facts.own[~known].sum())


# -- small kernels as ops on lists ---------------------------------------------------------------------

# Times the floor that a pass over large tensors takes in a list. Measured on an H200: AdamW over eight
# matrices of 134 MB took 11.9 ms in lists and 10.0 ms one by one, where its passes must take 9.9.
LARGE_IN_LISTS = 1.18


def lists_at_best(facts: WorkFacts, atoms: I64) -> Change:
    """The same bytes as fast as memory has them, in launches that cost nothing, with no Python between."""
    rows = rows_of(facts, atoms)
    ready = Change((Ready(rows, turn=0.0), NoHostWork(rows)))
    return to_floor(facts, atoms, passes_ns(facts, atoms)) + free_launches(facts, atoms) + ready


def passes_ns(facts: WorkFacts, atoms: I64) -> F64:
    """What each kernel's own bytes must take, ns; NaN unknown."""
    index = facts.atoms.index[atoms]
    share = facts.atoms.own[atoms] / np.maximum(facts.kernels.duration[index], 1)
    return facts.kernels.floor[index] * share


def in_lists(facts: WorkFacts, atoms: I64, still_walks: bool = False) -> Change:
    """The same bytes, large ones more slowly than one by one, small ones without a start for each; of one of
    torch's optimizers, which walks over its parameters in either case, less of the host is gone. Of what is
    written by oneself the Python from tensor to tensor goes too."""
    index = np.unique(facts.atoms.index[atoms])
    rows = facts.kernels.row[index]
    least = facts.kernels.floor[index] * LARGE_IN_LISTS
    factor = np.nan_to_num(least / np.maximum(facts.kernels.duration[index], NOT_ZERO_NS), nan=1.0)
    share = curves().host["foreach of for-loop" if still_walks else "op in a list"]
    listed = Change((Scale(rows, factor), Launch(rows, share), Ready(rows, turn=0.0)))
    return listed if still_walks else listed + Change((NoHostWork(rows),))
