"""Which way to a fix is tried: the job's own switch, and ours where that does nothing or fails."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from msgspec.structs import replace

from findwall.model.switches.typed_switches import is_by_switch
from findwall.trial.arms_in_turn import Outcome
from findwall.trial.judge import Attempt, did_nothing
from findwall.trial.stacks_tried import Candidate, Stack, View


class SwitchWays:
    def __init__(self) -> None:
        self._dead: set[str] = set()  # switches that did not do what they were tried for

    def live(self, one: Candidate) -> Stack:
        """How it is made by now."""
        if not one.switched:
            return one.fixes
        both = zip(one.fixes, one.switched, strict=True)
        return tuple(own if switched in self._dead else switched for own, switched in both)

    def first(self, view: View) -> View:
        """With switches in place of our ways to the same, as long as they work; of equals those go first."""
        made = [replace(one, fixes=self.live(one)) for one in view.candidates]
        made = [one for one in made if not one.only_switched or one.fixes == one.switched]
        alike = [list(group) for _, group in groupby(made, key=lambda one: one.predicted.mid)]
        ordered = [sorted(group, key=lambda one: -sum(map(is_by_switch, one.fixes))) for group in alike]
        return replace(view, candidates=[one for group in ordered for one in group])

    def note(self, attempt: Attempt, arm: Outcome, sure: Collection[str]) -> None:
        """Of an arm that failed the switch that did nothing; else all but those that something speaks for:
        `sure`, what was proven before."""
        if attempt.verdict not in ("failed", "incorrect"):
            return
        idle = did_nothing(attempt.fixes, arm) if arm.runs_ms else ""
        doubtful = {idle} if idle else set(attempt.fixes)
        self._dead |= {name for name in doubtful.difference(sure) if is_by_switch(name)}
