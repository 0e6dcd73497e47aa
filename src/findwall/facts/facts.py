"""Everything that is known of one rank's step, worked out once and shared by every cause and fix."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.model.answers.ranks_answer import RanksTogether, Suspect
from findwall.model.catalogue import ROOFS
from findwall.model.causes import UNKNOWN, ByCause, cause_index
from findwall.model.dataflow import (
    ROLES,
    Batches,
    LineLoop,
    ProductTree,
    Role,
    ScaledWeight,
    SparseProduct,
    Unneeded,
    WrittenCell,
)
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.replay.calibrate import Calibration, cheapest, play_with
from findwall.replay.change import Change
from findwall.replay.graph import Graph
from findwall.replay.simulate import Replay
from findwall.replay.step_reading import Scenario, StepReading
from findwall.replay.taken_away import taken_away
from findwall.step.links import issuers
from findwall.step.step_facts import StepFacts
from findwall.units import NOT_ZERO_NS, ms
from findwall.work.fusion import unfollowed
from findwall.work.work_facts import WorkFacts

# Of the step: a smaller cause is not listed but stays in the sum, under unknown. Chosen by hand.
LISTED_CAUSE_SHARE = 1e-4
FUSES = "unfused-pointwise"  # the cause that fusing chains of kernels moves


class RankFindings(msgspec.Struct, frozen=True):
    """What all ranks say together, and what of it concerns those whose facts are here."""

    answer: RanksTogether
    # Of each of those ranks: wait and duration of each of its communications, ns, and their rows in the
    # trace.
    waits: tuple[tuple[F64, F64], ...]
    rows: tuple[I64, ...]
    entries: tuple[F64, ...]  # and of each what it waited as the others' recordings had not begun
    # Of causes that are of several ranks: what a step is shorter by without, ns, as all ranks are replayed.
    saves: dict[str, float]
    bus_rate: float | None = None  # bytes/s of large transfers without waiting
    link_rate: float | None = None  # what the link between them carries, as measured or by the table
    by_host: bool = False  # the collectives are the host's (gloo): waiting for them is idle time

    @property
    def named(self) -> Suspect | None:
        """Who the others wait for, if it is one, and was seen to."""
        return next((one for one in self.answer.suspects if one.named and one.by == "replay"), None)

    @property
    def is_waited_for(self) -> bool:
        """Whether what ranks wait for each other is worth it: for one of them, or for others each step."""
        return self.saves["straggler"] > 0


class Facts(WorkFacts, frozen=True, dict=True):
    """The step, its work, and its replay: all there is. Times are ns a step unless a name says otherwise."""

    graph: Graph
    reading: StepReading
    unneeded: tuple[Unneeded, ...] = ()  # what the step does for nothing
    loops: tuple[LineLoop, ...] = ()  # of the job's own lines, where they were seen
    by_hand: Batches | None = None  # made in the training loop by the job's own code
    cell: WrittenCell | None = None  # that the job writes out, where its tensors were seen
    products: tuple[ProductTree, ...] | None = None  # in a row; None: nobody saw who reads what
    sparse: tuple[SparseProduct, ...] | None = None  # with matrices that were looked at for zeros
    scaled: tuple[ScaledWeight, ...] | None = None  # one weight for all samples, scaled for each
    wandering: int | None = None  # tensors that a step reads from other places than the one before
    ranks: RankFindings | None = None  # where several ranks were compared
    refused: frozenset[str] = frozenset()  # fixes that are not worth it here: no sentence advises them
    # ms that the best fix of a cause alone saves
    replayed: dict[str, float] = msgspec.field(default_factory=dict)

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
            kept[causes] = self.of_all_ranks(causes, max(shorter * scenario.shrink, 0.0)) + rare
        return kept[causes]

    def of_all_ranks(self, causes: tuple[str, ...], shorter: float) -> float:
        """Of what a rank's step is shorter by without causes that are of several ranks, what all ranks
        together make of it: the others are as far behind."""
        kept = self.ranks.saves if self.ranks is not None else {}
        theirs = tuple(cause for cause in causes if cause in kept)
        if not theirs:
            return shorter
        rest = tuple(cause for cause in causes if cause not in kept)
        alone = self.saved(rest) if rest else 0.0
        return min(shorter, alone + sum(kept[cause] for cause in theirs))

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


# -- device time of some atoms -------------------------------------------------------------------------


def time_of(facts: Facts, atoms: I64) -> float:
    """In ms a step."""
    return ms(float(facts.own[atoms].sum()))


def of_class(facts: WorkFacts, *names: str) -> Bool:
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


def rows_of(facts: WorkFacts, atoms: I64) -> I64:
    """The device rows of some atoms."""
    return facts.kernels.row[facts.atoms.index[atoms]]


def kernels_ns(facts: WorkFacts, atoms: I64) -> float:
    """What the kernels of some atoms take in all."""
    return float(facts.kernels.duration[facts.atoms.index[atoms]].sum())


def causes_of(facts: WorkFacts, atoms: I64, among: tuple[str, ...]) -> tuple[str, ...]:
    """Of these causes those that some atoms are of; all of them where the atoms are of none."""
    mine = facts.atoms.cause[atoms]
    return tuple(cause for cause in among if (mine == cause_index(cause)).any()) or among


def serve(facts: StepFacts, rows: I64, *roles: Role) -> Bool:
    """Which of these device rows have one of these roles."""
    by = issuers(facts.timeline, facts.links, rows)
    return (by >= 0) & np.isin(facts.roles[by], [ROLES.index(one) for one in roles])


def matching(facts: StepFacts, rows: I64, pattern: re.Pattern[str]) -> Bool:
    """Which of these rows have such a name."""
    return facts.timeline.named(pattern, rows)[facts.timeline.events.name[rows]]
