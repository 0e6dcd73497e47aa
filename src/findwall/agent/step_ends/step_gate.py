"""Between two steps that are measured, a step's end is timed and counted, and nothing else is done.

The hooks of a step are a few dozen Python calls, all of them cold by the next step: 50 us, which is much for
a step of a few milliseconds. So only one step in so many passes an open gate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from time import perf_counter_ns
from typing import Any

from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.timing.step_kinds import STANDS_OUT_RATIO

FOR_GOOD = 1 << 62  # ns, or steps: past any end
PAUSE_NS = 10_000  # no pass takes that long: another process had the core
ONE_END_SHARE = 0.02  # of a usual step: two ends closer than that are one
MOST_NOTED = 4096  # steps that stand out after all was measured: enough to tell how often they come
LOOK_NS = 100_000_000  # between two questions whether findwall itself still works beside the job
SHUT_AT_MOST_NS = 1_000_000_000  # four times as long as the gate is usually shut


class Gauge:
    """What happened since the last measured step. Written by the hooks, read and reset at a step's end."""

    __slots__ = ("batches", "evaluated", "gc_ns", "hook_ns", "loader_ns")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.loader_ns = self.gc_ns = self.hook_ns = self.batches = 0
        self.evaluated = False


class Watch:
    """Steps after all was measured: counted, and those noted that stand out. For the job's whole life.

    While findwall itself works beside the job, as it does on the verdict, it may take cores from it: those
    steps are counted, and their times are nobody's.
    """

    __slots__ = (
        "_block",
        "_block_ended",
        "_block_ns",
        "_ended",
        "_is_disturbed",
        "_key",
        "_least",
        "_limit",
        "_look_at",
        "_over",
        "_source",
        "_until",
        "count",
        "disturbed",
        "last",
        "ns",
        "slow_ns",
        "slow_step",
    )

    def __init__(
        self,
        source: StepEnd | None,
        key: int | None,
        usual_ns: float,
        ended: Callable[[int, int], None],
        block: int,
        block_ended: Callable[[float], None],
        until: int,
        over: Callable[[], None],
        is_disturbed: Callable[[], bool],
    ) -> None:
        self._source, self._key = source, key
        self._block, self._block_ended = block, block_ended  # told of the mean step of each block
        self._block_ns = 0
        self._until, self._over = until, over  # called once, at whatever mark comes after that
        self._limit = STANDS_OUT_RATIO * usual_ns
        self._ended = ended  # told of a step that stood out: its number from here on, and when it ended
        self._least = ONE_END_SHARE * usual_ns
        self._is_disturbed: Callable[[], bool] | None = is_disturbed  # asked until it says no
        self.last = self._look_at = perf_counter_ns()
        self.count = self.disturbed = self.ns = 0
        self.slow_step: list[int] = []
        self.slow_ns: list[int] = []

    def passed(self, source: StepEnd, key: int) -> None:
        now = perf_counter_ns()
        if now > self._until:
            self._until = FOR_GOOD
            self._over()
        if key != self._key or source is not self._source:
            return
        spent = now - self.last
        if spent < self._least:
            return  # a scaler's step() after its optimizer's: one end, told twice
        self.last = now
        is_disturbed = self._is_disturbed is not None and self._still_disturbed(self._is_disturbed, now)
        if spent > self._limit and len(self.slow_ns) < MOST_NOTED:
            self._ended(self.count, now)
            if not is_disturbed:
                self.slow_step.append(self.count)
                self.slow_ns.append(spent)
        self.count += 1
        if is_disturbed:
            self.disturbed = self.count
            return
        self.ns += spent
        self._block_ns += spent
        if self.timed % self._block == 0:
            mean, self._block_ns = self._block_ns / self._block, 0
            self._block_ended(mean)

    @property
    def timed(self) -> int:
        return self.count - self.disturbed

    def _still_disturbed(self, is_disturbed: Callable[[], bool], now: int) -> bool:
        """Also for the step in which the work ends."""
        if now >= self._look_at:
            self._look_at = now + LOOK_NS
            if not is_disturbed():
                self._is_disturbed = None
        return True


class Gate:
    """Shut while `left` is not 0: so many step ends pass before the next step is measured."""

    __slots__ = (
        "_gauge",
        "_key",
        "_known",
        "_source",
        "_thread",
        "_until",
        "ends",
        "inside",
        "left",
        "spent_ns",
        "watch",
    )

    def __init__(self) -> None:
        self.left = 0
        self.ends: list[int] = []  # when the steps that passed ended
        self.spent_ns = 0  # our own time on them
        self._source: StepEnd | None = None
        self._key: int | None = None
        self._known: Set[int] = frozenset()
        self._gauge: Gauge | None = None
        self._thread = self._until = 0
        self.watch: Watch | None = None
        self.inside = False  # an optimizer's step() that passes

    def shut(
        self,
        source: StepEnd | None,
        key: int | None,
        steps: int,
        gauge: Gauge | None = None,
        known: Set[int] = frozenset(),
    ) -> None:
        """Let so many steps pass, ended by this mark, beside others of its kind that are `known`.

        `gauge`: where waiting for data is noted meanwhile."""
        self._source, self._key, self._gauge, self._known = source, key, gauge, known
        self._thread = threading.get_ident()
        self._until = perf_counter_ns() + SHUT_AT_MOST_NS
        self.left = steps

    def shut_for_good(self) -> None:
        """Nothing more will be measured."""
        self.shut(None, None, FOR_GOOD)
        self._until = FOR_GOOD

    def shut_until_better(self, source: StepEnd | None) -> None:
        """For good, unless a mark comes that says more about where steps end."""
        self.shut(source, None, FOR_GOOD)
        self._until = FOR_GOOD

    def open_again(self) -> None:
        """Also where it was shut for good: the job is measured once more."""
        self.shut(None, None, 0)

    def open(self) -> None:
        """The next step is measured, whatever is left."""
        if self._until != FOR_GOOD:
            self.left = 0

    def passed(self, source: StepEnd, key: int) -> bool:
        """At the shut gate: something ended that may end a step. True: it must not pass, it is new here."""
        if self.watch is not None:
            self.watch.passed(source, key)
        if self._source is None:
            return False
        now = perf_counter_ns()
        if key == self._key and source is self._source:
            self.ends.append(now)
            # Opened inside this very step (an eval() in its closure) it is open already.
            self.left = max(self.left - 1, 0) if now <= self._until else 0
        elif source < self._source or (
            source is self._source and self._key is not None and key not in self._known
        ):
            self.left = 0
            return True
        elif now > self._until:
            self.left = 0  # what ended steps comes no more: something else may by now
        spent = perf_counter_ns() - now
        # As much again went by on the way here and back, which no clock of ours can see; not of a pause.
        self.spent_ns += 2 * spent if spent < PAUSE_NS else spent
        return False

    def let_optimizer_pass(
        self,
        step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tell: Callable[[Any, bool], None],
    ) -> Any:
        if self.inside:  # one optimizer's step() may call another's, or that of its base class
            return step(*args, **kwargs)
        self.inside = True
        try:
            result = step(*args, **kwargs)
        finally:
            self.inside = False
        if self.passed(StepEnd.OPTIMIZER, id(args[0])):
            tell(args[0], False)
        return result

    def waited_for_data(self, spent_ns: int, batches: int = 1) -> None:
        gauge = self._gauge
        if gauge is not None and threading.get_ident() == self._thread:
            gauge.loader_ns += spent_ns
            gauge.batches += batches

    @property
    def is_timing(self) -> bool:
        """Timed steps pass, or have passed, on the thread that asks."""
        passing = self.left > 0 or bool(self.ends)
        return passing and self._gauge is not None and threading.get_ident() == self._thread

    def take(self) -> tuple[list[int], int]:
        """The steps that passed since the last call, and what they cost."""
        taken = self.ends, self.spent_ns
        self.ends, self.spent_ns = [], 0
        return taken
