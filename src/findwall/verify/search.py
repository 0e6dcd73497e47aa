"""The way to the fastest stack: try what is predicted best, keep what is proven, look at the job anew, go on.

Who runs the processes and who looks at the job is the caller's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from findwall.verify.judge import Attempt, bare, judge
from findwall.verify.statistics import LEAST_DIFFERENCE, compare, noise_floor, verdict
from findwall.verify.trial import Outcome, Trial

AT_ONCE = 3  # candidates in one trial, so that each turn of the arms stays short. Chosen by hand.
EARLY = {"deadline": "the budget is spent", "interrupted": "interrupted"}
PLAIN, AGAIN = "plain", "plain, from another seed"

Stack = tuple[str, ...]


class Candidate(msgspec.Struct, frozen=True):
    """A fix that can be made without an edit."""

    name: str
    exact: bool  # it promises the same numbers
    predicted_ms: float | None = None


class View(msgspec.Struct, frozen=True):
    """The job with a stack made, as a diagnosis sees it."""

    wall: str
    step_ms: float | None
    candidates: list[Candidate]


class Stage(msgspec.Struct, frozen=True):
    """One stretch of the road: where the job stood, and what was tried there."""

    stack: Stack
    view: View
    attempts: list[Attempt]


class Found(msgspec.Struct):
    """All that was measured, however it ended."""

    stages: list[Stage] = []
    stack: Stack = ()
    total: Attempt | None = None  # the stack beside the plain job
    noise: float | None = None  # of two plain arms: what must be exceeded
    plain_ms: float | None = None
    ended: str = ""
    seconds: float = 0.0


Measure = Callable[[dict[str, Stack]], Trial]  # arms by name, with what is made in each
Look = Callable[[Stack], View | None]
Conflict = Callable[[Stack, str], bool]  # whether a fix is another way to what a stack does already


def search(measure: Measure, look: Look, conflict: Conflict, only: Sequence[str] = ()) -> Found:
    """`only`: the fixes a person named; else all that a view offers."""
    found = Found()
    try:
        _search(found, measure, look, conflict, only)
    except KeyboardInterrupt:  # between two trials: within one it is noted
        found.ended = "interrupted"
    return found


def _search(found: Found, measure: Measure, look: Look, conflict: Conflict, only: Sequence[str]) -> None:
    tried: set[str] = set()
    exact: dict[str, bool] = {}
    view = look(())
    while view is not None:
        exact |= {one.name: one.exact for one in view.candidates}
        wanted = [one for one in view.candidates if not only or bare(one.name) in only]
        todo = [one for one in wanted if one.name not in tried and not conflict(found.stack, one.name)]
        todo = todo[:AT_ONCE]
        if not todo:
            found.ended = "nothing is left to try"
            return
        attempts, ended = _stage(found, measure, todo, exact)
        found.stages.append(Stage(found.stack, view, attempts))
        tried |= {one.name for one in todo}
        proven = sorted((one for one in attempts if one.verdict == "faster"), key=_gain, reverse=True)
        if proven:
            found.stack, found.total = proven[0].fixes, proven[0]
            tried -= {one.fixes[-1] for one in proven[1:]}  # proven alone: tried again on top
        if ended:
            found.ended = ended
            return
        view = look(found.stack) if proven else view
    found.ended = "the job could not be looked at again"


def _gain(one: Attempt) -> float:
    return one.faster.ratio if one.faster is not None else 0.0


def _stage(
    found: Found, measure: Measure, todo: list[Candidate], exact: dict[str, bool]
) -> tuple[list[Attempt], str]:
    """Every candidate on top of the stack, beside the plain job and the plain job from another seed."""
    stacks = {"+".join((*found.stack, one.name)): (*found.stack, one.name) for one in todo}
    arms: dict[str, Stack] = {PLAIN: (), AGAIN: (), **stacks}
    if found.stack:
        arms["+".join(found.stack)] = found.stack
    trial = measure(arms)
    found.seconds += trial.seconds
    plain, again = trial.arms[PLAIN], trial.arms[AGAIN]
    found.noise = noise_floor(plain.runs_ms, again.runs_ms)
    found.plain_ms = plain.median_ms
    floor = max(found.noise, LEAST_DIFFERENCE)
    attempts = []
    for name, fixes in stacks.items():
        safe = all(exact.get(one, False) for one in fixes)
        attempt = judge(fixes, trial.arms[name], plain, again, safe, floor)
        if found.stack:
            attempt = _on_top(attempt, trial.arms[name], trial.arms["+".join(found.stack)], floor)
        attempts.append(attempt)
    return attempts, EARLY.get(trial.ended, "")


def _on_top(attempt: Attempt, arm: Outcome, below: Outcome, floor: float) -> Attempt:
    """A fix on top of a stack must make that stack faster, not only the plain job."""
    if attempt.verdict in ("failed", "incorrect"):
        return attempt
    return replace(attempt, verdict=verdict(compare(below.runs_ms, arm.runs_ms), floor))
