"""What the step will be with fixes made: the replay of what they do, and how far off such replays were."""

from __future__ import annotations

from functools import cache
from importlib import resources
from math import exp, hypot, log, sqrt

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.facts.best_changes import (
    WARMER_LIKELY,
    WARMER_USUALLY,
    by_clock,
    on_warm_cores,
    with_slow_steps,
)
from findwall.facts.facts import Facts
from findwall.facts.gains import is_blind
from findwall.facts.likely_times import slowed
from findwall.fixes import Use, all_fixes
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import Basis
from findwall.model.intervals import I64
from findwall.probe.probe_plan import COMPILERS, probed
from findwall.replay.calibrate import Calibration, play_with
from findwall.replay.change import Change, Drop
from findwall.replay.graph import Graph
from findwall.replay.rewiring import nodes_of
from findwall.replay.simulate import Replay

ERRORS = "errors.json"


class Prediction(msgspec.Struct, frozen=True):
    """The step, ns."""

    low: float
    mid: float
    high: float
    basis: Basis = "curves"
    # Times the bound: by how much another run may beat it. Kernels do not, the host has slow days and fast.
    noise: float = 1.0


class Errors(msgspec.Struct, frozen=True):
    """How far predictions were off on jobs whose fixes were measured, as logarithms."""

    noise: float  # of any prediction, also of one that changes nothing
    host_noise: float  # the same of a step that the host decides, whose pace differs from run to run
    share: dict[Basis, float]  # of the predicted change, by what it rests on, of a fix that nobody measured
    by_fix: dict[
        str, float
    ]  # the same of fixes that were: nearer to their own, the more kinds of jobs had it
    below: float  # times that: how far an interval reaches to a shorter step, and
    above: float  # to a longer one, to hold nine in ten measurements of jobs of other kinds

    def doubt(self, names: tuple[str, ...], basis: Basis, gain: float, idle: float) -> float:
        """How far off a prediction is that changes the step by so much; `idle`: the share of today's step
        that the device waits."""
        share = max(self.by_fix.get(name, self.share[basis]) for name in names)
        return hypot(self.noise, self.host_noise * idle, share * sqrt(gain))


@cache
def errors() -> Errors:
    return msgspec.json.decode(resources.files(__package__).joinpath(ERRORS).read_bytes(), type=Errors)


class Ends(msgspec.Struct, frozen=True):
    """The step, ns, as replays tell it: the likely one, and the shortest and longest that may be as well.

    A step that waits for its device says little about the host, which is what waits once the device is
    faster: so the change is played on the likely host and on the cheapest that the true step allows. And
    some fixes do little or much by what no trace shows."""

    short: float
    mid: float
    long: float
    basis: Basis


def predict(facts: Facts, uses: dict[str, Use]) -> Prediction | None:
    """The step with some fixes made together, by their names; None where nobody can tell what one does."""
    found = ends(facts, uses)
    if found is None:
        return None
    idle = 1.0 - facts.reading.likely.busy / facts.step
    known = errors()
    doubt = known.doubt(tuple(uses), found.basis, abs(log(facts.step / found.mid)), idle)
    low, high = found.short * exp(-known.below * doubt), found.long * exp(known.above * doubt)
    return Prediction(
        low, found.mid, high, found.basis, exp(-known.below * hypot(known.noise, known.host_noise * idle))
    )


def ends(facts: Facts, uses: dict[str, Use]) -> Ends | None:
    """None where nobody can tell."""
    if is_blind(facts, *mended_by(uses)):
        return None
    played = [_played(facts, made) for made in _cases(uses)]
    graphs = [graph for graph, _ in played if graph is not None]
    steps = [_steps(facts, uses, graph, WARMER_LIKELY) for graph in graphs]
    if not steps or min(map(min, steps)) <= 0:
        return None
    colder, warmest = steps, steps
    if facts.graph.on_cores:
        colder, warmest = ([_steps(facts, uses, graph, how) for graph in graphs] for how in WARMER_USUALLY)
    short, long, traced = min(map(min, warmest)), max(map(max, colder)), exp(_step_doubt(facts))
    return Ends(short / traced, sqrt(steps[0][0] * steps[0][1]), long * traced, played[0][1])


def _cases(uses: dict[str, Use]) -> list[dict[str, Use]]:
    """The likely case, then the best and the worst ones of each fix that has such."""
    found = [uses]
    for name, one in uses.items():
        found += [{**uses, name: replace(one, likely=case)} for case in one.may]
    return found


def _steps(facts: Facts, uses: dict[str, Use], graph: Graph, how: float) -> tuple[float, float]:
    """On the likely host, and on the cheapest. `how`: by how much what stays runs faster on cores."""
    likely = facts.reading.likely
    moves = moved_by(uses)
    left = likely.step - _not_replayed(facts, moves) - by_clock(facts, moves)
    slow = with_slow_steps(facts, moves)

    def step(calibration: Calibration, now: Replay) -> float:
        then = on_warm_cores(facts, graph, play_with(graph, calibration).step, how)
        return (left - (now.step - then) * likely.shrink) * slow

    first = step(likely.calibration, likely.gaps.replay)
    if (slower := slowed(facts, graph, frozenset(uses), first)) is not None:
        graph = slower.apply(graph)
        first = step(likely.calibration, likely.gaps.replay)
    return first, step(*facts.cheapest) if facts.cheapest[0] != likely.calibration else first


def moved_by(uses: dict[str, Use]) -> tuple[str, ...]:
    """The causes that some fixes move in this job."""
    return tuple(
        dict.fromkeys(cause for name, one in uses.items() for cause in one.moves or all_fixes()[name].moves)
    )


def mended_by(uses: dict[str, Use]) -> tuple[str, ...]:
    """The causes whose work is still done, but faster: of what is not done at all no floor need be known."""
    return moved_by({name: one for name, one in uses.items() if not all_fixes()[name].removes})


def changed(facts: Facts, uses: dict[str, Use]) -> Graph | None:
    """The graph with all edits made; None where nobody can tell what one of them does."""
    return _played(facts, uses)[0]


def _played(facts: Facts, uses: dict[str, Use]) -> tuple[Graph | None, Basis]:
    """The graph with all edits made, and what they rest on. What was probed counts more than what a fix says
    of it, and what is gone comes last: nothing that another fix says brings it back."""
    made = frozenset(uses)
    change = Change()
    for _, one in sorted(uses.items()):  # whatever order they are named in
        if one.likely is None or not one.shorter_step:
            return None, "curves"
        change += one.likely(made)
    kept = tuple(edit for edit in change.edits if not isinstance(edit, Drop))
    gone = tuple(edit for edit in change.edits if isinstance(edit, Drop))
    told = probed(facts, made)
    graph = Change(kept + told.change.edits + gone).apply(facts.graph)
    rewritten = [one.probed for one in uses.values() if one.probed is not None]
    rows = np.unique(np.concatenate([told.rows, told.instead, *rewritten]))
    # What a compiler writes is not probed: only products that it pads, or turns images for.
    if not made & COMPILERS and _mostly_probed(facts.graph, graph, rows):
        return graph, "probed"
    if all(one.uncurved for one in uses.values()):
        return graph, "replay"
    # Of cores nobody measured how fast such ops run: the bound alone stands.
    return None if facts.graph.on_cores else graph, "curves"


def _mostly_probed(before: Graph, after: Graph, rows: I64) -> bool:
    """Whether most of the device time that changes is of rows that probes tell the time of."""
    if len(rows) == 0:
        return False
    mine = before.rows
    then = after.rows  # the same rows, at places that a change may have moved
    same = nodes_of(after, before.row[mine])[0] if len(then) == len(mine) else then
    moved = np.abs(after.own[same] - before.own[mine]) * before.weight[mine]
    return bool(moved[np.isin(before.row[mine], rows)].sum() > MAJORITY_SHARE * moved.sum())


def _step_doubt(facts: Facts) -> float:
    """Half of how far apart the shortest and the longest step lie that the trace allows."""
    short, long = facts.reading.short.step, facts.reading.long.step
    return log(long / short) / 2 if 0 < short < long else 0.0


def _not_replayed(facts: Facts, moves: tuple[str, ...]) -> float:
    """Of the step what no traced one shows and these fixes take away: rare slow steps, and what is left over
    where what they mend is what the device waits for most."""
    likely = facts.reading.likely
    rare = sum(likely.rare.get(cause, 0.0) for cause in moves)
    known = likely.idle.total - likely.idle[UNKNOWN]
    return rare + (likely.left_over if likely.idle.of(moves) > MAJORITY_SHARE * known > 0 else 0.0)
