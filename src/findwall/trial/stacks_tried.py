"""What is tried on the way to the fastest stack, and what was found on it."""

from __future__ import annotations

import msgspec

from findwall.model.claims import Range
from findwall.trial.judge import Attempt
from findwall.trial.screened import Screened

EARLY = {"deadline": "the budget is spent", "interrupted": "interrupted"}
TOO_SHORT = "what is left of the budget is too short for another trial"
OUT_OF_TIME = (EARLY["deadline"], TOO_SHORT)
NO_LOOK = "the job could not be looked at again"
ALSO = " + "  # between fixes that are made together
PLAIN, AGAIN = "plain", "plain, from another seed"

Stack = tuple[str, ...]


class Candidate(msgspec.Struct, frozen=True):
    """Fixes that can be made without an edit, alone or together."""

    fixes: Stack
    exact: bool  # they promise the same numbers
    predicted: Range = msgspec.field(default_factory=Range)  # the step in ms
    stands_in: bool = False  # one of them needs an edit, and is shown by what costs time itself
    redraws: bool = False  # with one of them a dataset that draws at random draws other numbers
    # The same, with those that a switch of the job's own makes: they are tried in this way first.
    switched: Stack = ()
    only_switched: bool = False  # one of them can be made by a switch alone


class View(msgspec.Struct, frozen=True):
    """The job with a stack made, as a diagnosis sees it."""

    wall: str
    step_ms: float | None
    candidates: list[Candidate]  # the best first


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
    screened: list[Screened] = []  # in one process, look by look
    untried: list[Candidate] = []  # what there was no time for, the best first
    short_s: float = 0.0  # by how much the budget was too short for the first of them


def joined(stack: Stack) -> str:
    return ALSO.join(stack)
