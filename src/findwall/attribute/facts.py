"""Everything that is known of one rank's step, worked out once and shared by every cause and fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.attribute.budget import DeviceAtoms, claim_throttled, claim_whole, device_atoms
from findwall.attribute.fusion import Fused, fuse, unfollowed
from findwall.attribute.hardware_counters import Counted, Matched, match, settle
from findwall.attribute.kernels import BOUNDS, KernelTable, kernel_table, taken_at_their_word
from findwall.attribute.rank_findings import RankFindings
from findwall.attribute.reading import Conditions, Scenario, StepReading, read_step
from findwall.attribute.taken_away import taken_away
from findwall.attribute.workmodel.kernel_names import with_kernel_types
from findwall.attribute.workmodel.recompute import because_of_checkpoints
from findwall.model.catalogue import KERNEL_CLASSES, ROOFS
from findwall.model.causes import UNKNOWN, ByCause, cause_index
from findwall.model.events import DEVICE_KINDS, Bool, Timeline
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES, Ceilings
from findwall.model.run import Rank, Run
from findwall.replay.build import build
from findwall.replay.calibrate import Calibration, cheapest, play_with
from findwall.replay.change import Change
from findwall.replay.graph import Graph
from findwall.replay.simulate import Replay
from findwall.step.captured_ops import noted_replays, with_captured_ops
from findwall.step.cores import core_ceilings, cores_as_device
from findwall.step.device_queue import line_up
from findwall.step.host_activity import asked_for, watch_host
from findwall.step.links import link
from findwall.step.step_bounds import find_steps
from findwall.step.step_facts import Host, Links, Queue, Steps, Whole
from findwall.step.step_window import representative, survey
from findwall.step.timed_steps import (
    collections_ns,
    cores_at_work,
    kinds_found,
    kinds_traced,
    loader_ns,
    rare_ns,
    throttled_share,
)
from findwall.units import NOT_ZERO_NS, ms

# Of the step: a smaller cause is not listed but stays in the sum, under unknown. Chosen by hand.
LISTED_CAUSE_SHARE = 1e-4
FUSES = "unfused-pointwise"  # the cause that fusing chains of kernels moves
T = TypeVar("T")


class Facts(msgspec.Struct, frozen=True, dict=True):
    """One rank with device events. Times are nanoseconds a step unless a name says otherwise."""

    run: Run
    rank: Rank  # of the run: whose facts these are
    timeline: Timeline
    links: Links
    steps: Steps
    host: Host
    queue: Queue
    graph: Graph
    kernels: KernelTable
    atoms: DeviceAtoms
    reading: StepReading
    ceilings: Ceilings
    whole: Whole  # the trace these steps are taken from
    ranks: RankFindings | None = None  # where several ranks were compared
    refused: frozenset[str] = frozenset()  # fixes that are said to be of no use: no sentence advises them
    replayed: dict[str, float] = {}  # ms that the best fix of a cause alone saves
    counted: Counted | None = None  # where counters settled what shapes did not tell
    profiled: Matched | None = None  # kernels whose bytes Nsight Compute counted

    @property
    def step(self) -> float:
        return self.reading.likely.step

    @cached_property
    def own(self) -> F64:
        """Device time of every atom, a step, scaled to the true step."""
        return self._own(self.reading.likely)

    @cached_property
    def weight(self) -> F64:
        """What each atom counts for in the mean step: 1 where all steps are of one kind."""
        of_row = np.ones(len(self.timeline.events))
        of_row[self.graph.row[self.graph.rows]] = self.graph.weight[self.graph.rows]
        return of_row[self.kernels.row[self.atoms.index]]

    def _own(self, scenario: Scenario) -> F64:
        rows, scale = scenario.lengths(self.graph)
        of_row = np.ones(len(self.timeline.events))
        of_row[rows] = scale
        of_atom = of_row[self.kernels.row[self.atoms.index]] * self.weight
        own: F64 = self.atoms.own * of_atom / self.steps.count
        # Rows that overlap may do so otherwise once replayed; the replayed busy time is what is kept.
        return own * (scenario.busy / max(float(own.sum()), NOT_ZERO_NS))

    @cached_property
    def cheapest(self) -> tuple[Calibration, Replay]:
        """The cheapest host that the true step allows, and the step on it: what changes are played on."""
        likely = self.reading.likely
        return cheapest(self.graph, likely.calibration, likely.gaps.replay)

    @cached_property
    def chains(self) -> tuple[I64, I64, Fused]:
        """The model's kernels in device order, the step of each, and what fusing their chains would do."""
        model = ~self.kernels.is_class("optimizer")
        index = np.unique(self.atoms.index[model[self.atoms.index]])
        index = index[np.argsort(self.kernels.start[index], kind="stable")]
        step = self.queue.step[self.queue.positions(self.kernels.row[index])]
        fused = fuse(self.timeline, self.kernels, index, step, float(self.ceilings.l2_bytes or 0))
        return index, step, fused

    def spent(self, scenario: Scenario | None = None) -> ByCause:
        """Time of every cause; it sums to the step."""
        scenario = scenario or self.reading.likely
        return ByCause.summed(self.atoms.cause, self._own(scenario)) + scenario.idle

    def unknown(self, scenario: Scenario | None = None) -> float:
        """All that is of unknown cause: idle and device time, and causes too small to be listed."""
        scenario = scenario or self.reading.likely
        spent = self.spent(scenario)
        unlisted = spent.values <= LISTED_CAUSE_SHARE * scenario.step
        unlisted[cause_index(UNKNOWN)] = True
        return float(spent.values[unlisted].sum())

    def taken_away(self, cause: str, scenario: Scenario | None = None) -> Change:
        """The Change that takes a cause away."""
        scenario = scenario or self.reading.likely
        return taken_away(cause, self.atoms, self.kernels, self.graph, scenario)

    def saved(self, causes: tuple[str, ...], scenario: Scenario | None = None) -> float:
        """What the step is shorter by without these causes together, ns: they may hide each other.

        Rare slow steps go with their cause. Where the device is the slower side, the true step says only that
        the host is no slower: then it is as cheap as may be.
        """
        scenario = scenario or self.reading.likely
        kept: dict[tuple[str, ...], float] = vars(self).setdefault("_saved", {}).setdefault(id(scenario), {})
        if causes not in kept:
            calibration, now = scenario.calibration, scenario.gaps.replay
            if self.reading.source in ("given", "measured"):
                calibration, now = self.cheapest
            change = sum((self.taken_away(cause, scenario) for cause in causes), Change())
            shorter = now.step - play_with(change.apply(self.graph), calibration).step
            rare = sum(scenario.rare.get(cause, 0.0) for cause in causes)
            kept[causes] = max(shorter * scenario.shrink, 0.0) + rare
        return kept[causes]

    def recoverable(self, scenario: Scenario | None = None) -> ByCause:
        """What the step is shorter by without each cause alone, and no more than it takes above its floor.
        NaN where no floor is known.

        What comes on top, as launches that no longer wait, is the prediction's to tell.
        """
        scenario = scenario or self.reading.likely
        found = self.local(scenario)
        for cause in found.ranked():
            found[cause] = min(found[cause], self.saved((cause,), scenario))
        return found

    def local(self, scenario: Scenario | None = None) -> ByCause:
        """What each cause takes above its floor, whatever waits behind it; NaN where no floor is known."""
        scenario = scenario or self.reading.likely
        own = self._own(scenario)
        floor = np.divide(
            self.atoms.floor * own, self.atoms.own, out=np.full(len(own), np.nan), where=self.atoms.own > 0
        )
        gain = np.maximum(own - floor, 0.0)
        known = ~np.isnan(gain)
        found = ByCause.summed(self.atoms.cause[known], gain[known])
        blind = ByCause.summed(self.atoms.cause[~known], own[~known])
        # Of a cause that has idle time too, as much is known to come back.
        found.values[(found.values == 0) & (blind.values > 0) & (scenario.idle.values <= 0)] = np.nan
        found = found + scenario.idle
        found["launch-bound"] -= scenario.turnaround
        for roof in ROOFS:
            found[roof] = 0.0
        found[UNKNOWN] = np.nan
        return found

    def blind(self, scenario: Scenario, but: str = "") -> float:
        """Device time of known cause of which nobody knows what could come back; that of one cause left out.

        Recorded without shapes, or with shapes and no types, floors are missing, and what fusing would save.
        """
        lost = np.isnan(self.atoms.floor) & ~np.isin(self.atoms.cause, [cause_index(UNKNOWN)])
        if but != FUSES:
            lost |= self._unfollowed
        if but:
            lost &= self.atoms.cause != cause_index(but)
        return float(self._own(scenario)[lost].sum())

    @cached_property
    def _unfollowed(self) -> Bool:
        return unfollowed(self.timeline, self.kernels, self.atoms.index)

    def spent_ms(self, cause: str) -> float:
        return ms(self.spent()[cause])

    def recoverable_ms(self, cause: str) -> float | None:
        value = self.recoverable()[cause]
        return None if np.isnan(value) else ms(value)

    def share(self, cause: str) -> float:
        """Of the step."""
        return self.spent()[cause] / self.step if self.step > 0 else 0.0

    # -- what a cause or a fix looks at ------------------------------------------------------------

    def atoms_of(self, cause: str) -> I64:
        """Positions of a cause's device atoms, longest first."""
        found = self.atoms.of(cause)
        return found[np.argsort(-self.own[found], kind="stable")]

    def kernel_name(self, atom: int) -> str:
        return self.timeline.name_of(int(self.kernels.row[self.atoms.index[atom]]))

    def op_row(self, atom: int) -> int:
        return int(self.kernels.op[self.atoms.index[atom]])

    def op_name(self, atom: int) -> str | None:
        row = self.op_row(atom)
        return self.timeline.name_of(row) if row >= 0 else None

    def kernel_class(self, atom: int) -> str:
        return KERNEL_CLASSES[int(self.kernels.class_index[self.atoms.index[atom]])]

    def bound(self, atom: int) -> str:
        return BOUNDS[int(self.kernels.bound[self.atoms.index[atom]])]

    def math(self, atom: int) -> str | None:
        index = int(self.kernels.math_index[self.atoms.index[atom]])
        return MATH_TYPES[index] if index >= 0 else None

    def idle_rows(self, cause: str) -> tuple[I64, F64]:
        """Queue positions before which the device idled for this cause, longest first, with ns a step."""
        likely = self.reading.likely
        column = likely.gaps.before.get(cause, np.zeros(0))
        total = likely.idle[cause] - (likely.turnaround if cause == "launch-bound" else 0.0)
        column = column * (max(total, 0.0) / max(float(column.sum()), NOT_ZERO_NS))
        found = np.flatnonzero(column > 0)
        found = found[np.argsort(-column[found], kind="stable")]
        return self.queue.positions(likely.gaps.row[found]), column[found]

    def advised(self, refused: frozenset[str], replayed: dict[str, float]) -> Facts:
        """With what the fixes said of them. What was found so far does not hang on that: it stays found."""
        facts = replace(self, refused=refused, replayed=replayed)
        vars(facts).update(vars(self))
        return facts

    @property
    def turnaround_ms(self) -> float:
        """Idle time with the next kernel already queued, a step: the device's own."""
        return ms(self.reading.likely.turnaround)


def found_once(find: Callable[[Facts], T]) -> Callable[[Facts], T]:
    """What another module finds in facts: looked for when it is first asked for, and kept with them as their
    own cached properties are."""
    name = f"{find.__module__}.{find.__qualname__}"  # two modules may call theirs the same

    @wraps(find)
    def found(facts: Facts) -> T:
        kept: dict[str, T] = vars(facts)
        if name not in kept:
            kept[name] = find(facts)
        return kept[name]

    return found


# -- device time of some atoms -------------------------------------------------------------------------


def time_of(facts: Facts, atoms: I64) -> float:
    """In ms a step."""
    return ms(float(facts.own[atoms].sum()))


def of_class(facts: Facts, *names: str) -> Bool:
    """Which atoms are of these kernel classes."""
    return facts.kernels.is_class(*names)[facts.atoms.index]


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
    """Which of these rows have such a name."""
    return facts.timeline.named(pattern, rows)[facts.timeline.events.name[rows]]


# -- how they come about -------------------------------------------------------------------------------


def establish(
    run: Run, rank: Rank, ceilings: Ceilings, true_step_s: float | None, source: str
) -> Facts | None:
    """The facts of one rank; None without device events. A CPU job's device is its cores."""
    if rank.timeline is None:
        return None
    timeline = recorded = rank.timeline
    on_cores = rank.device_kind == "cpu"
    if on_cores:
        timeline, ceilings = cores_as_device(timeline), core_ceilings(ceilings)
    whole = survey(timeline, on_cores, rank.evaluated, warm=rank.step_times is not None)
    if whole.steps.device < 0 or whole.steps.count == 0:
        return None
    timeline = representative(whole, kinds_found(rank, whole.told))
    timeline = with_captured_ops(timeline, rank.captures, noted_replays(recorded, rank.replays))
    links = link(timeline)
    timeline = with_kernel_types(timeline, links)
    steps = find_steps(timeline, links)
    host = watch_host(timeline, links, whole.left_out.hidden)
    queue = line_up(timeline, links, steps)
    profiled = match(timeline, timeline.rows(*DEVICE_KINDS), run.ncu, steps.count) if run.ncu else None
    nbytes = profiled.nbytes if profiled is not None else None
    kernels = kernel_table(timeline, links, ceilings, steps.count, nbytes)
    graph = build(timeline, links, host, queue, on_cores)
    if kernels.recompute.any():
        late = because_of_checkpoints(timeline, links, kernels.row, kernels.recompute)
        graph = replace(graph, checkpointing=kernels.row[late])
    graph, conditions = _as_timed(graph, rank, timeline, queue, source)
    reading = read_step(graph, true_step_s, source, conditions.rare)
    judged = _at_their_word(kernels, rank, reading) if on_cores and not ceilings.known else kernels
    atoms = device_atoms(timeline, links, judged, queue, ceilings)
    atoms, kernels, counted = settle(atoms, kernels, rank, ceilings, steps.count)
    atoms = _with_servants(atoms, kernels, timeline, links, host)
    atoms = claim_throttled(atoms, kernels, throttled_share(rank.telemetry))
    return Facts(
        run=run,
        rank=rank,
        timeline=timeline,
        links=links,
        steps=steps,
        host=host,
        queue=queue,
        graph=graph,
        kernels=kernels,
        atoms=atoms,
        reading=reading,
        ceilings=ceilings,
        whole=whole,
        counted=counted,
        profiled=profiled,
    )


def _at_their_word(kernels: KernelTable, rank: Rank, reading: StepReading) -> KernelTable:
    """Kernels on cores that nobody measured."""
    likely = reading.likely
    return taken_at_their_word(kernels, cores_at_work(rank.telemetry, likely.busy / max(likely.step, 1.0)))


def _as_timed(
    graph: Graph, rank: Rank, timeline: Timeline, queue: Queue, source: str
) -> tuple[Graph, Conditions]:
    """The graph with what was measured beside the trace: kinds of steps, collections, the loader's time."""
    conditions = Conditions()
    if source == "measured":
        kinds = kinds_traced(rank, timeline, queue)
        graph = replace(graph, share=kinds.share)
        conditions = Conditions(rare_ns(rank, kinds), collections_ns(rank), loader_ns(rank))
    return conditions.change().apply(graph), conditions


def _with_servants(
    atoms: DeviceAtoms, kernels: KernelTable, timeline: Timeline, links: Links, host: Host
) -> DeviceAtoms:
    """Kernels that a library only tries out, and those that only answer a question of the host."""
    tried = np.isin(kernels.op[atoms.index], host.trials)
    asked = asked_for(timeline, links, host.questions, kernels.row[atoms.index])
    return claim_whole(claim_whole(atoms, tried, "recompilation"), asked, "host-sync")
