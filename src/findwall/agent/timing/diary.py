"""What a job does beside its steps, and how long: it saves, evaluates, starts its loaders.

Each of these comes seldom, so each is timed whenever it comes, to the job's end; a step pays nothing for it.
"""

from __future__ import annotations

from time import perf_counter_ns

from findwall.model.measurement import Beside, Elapsed

SAVING, LOADER_START, EVALUATION = "saving", "loader-start", "evaluation"
MOST_ENTRIES = 2000  # a job that saves in every step is told by the first of them


class Diary:
    """Written by the hooks on the thread that trains."""

    def __init__(self, began: int | None = None) -> None:
        self.began = perf_counter_ns() if began is None else began
        self.first_step = 0  # when it ended
        self.last_step = 0
        self.held_up = 0  # by findwall itself
        self.entries: list[Beside] = []
        self.total: dict[str, int] = {}
        self._evaluating_since = 0

    def note(self, what: str, step: int, spent_ns: int) -> None:
        """It happened in this step, for so long."""
        self.total[what] = self.total.get(what, 0) + spent_ns
        if len(self.entries) < MOST_ENTRIES:
            self.entries.append(Beside(step, what, spent_ns))

    def evaluation_began(self) -> None:
        self._evaluating_since = self._evaluating_since or perf_counter_ns()

    def step_ended(self, step: int, now: int, usual_ns: float) -> None:
        """An evaluation is over with the next step's end; that step's own work is not part of it.

        An `eval()` before the first step sets up a job that only infers: it is part of the start.
        """
        spent = now - self._evaluating_since - int(usual_ns)
        if self._evaluating_since and self.first_step and spent > 0:
            self.note(EVALUATION, step, spent)
        self._evaluating_since = 0
        self.first_step = self.first_step or now
        self.last_step = now

    def elapsed(self, now: int) -> Elapsed:
        """The job's time so far, and what it went to."""
        start_up = (self.first_step or now) - self.began
        after = now - self.last_step if self.last_step else 0
        return Elapsed(now - self.began, start_up, after, self.held_up, dict(self.total))
