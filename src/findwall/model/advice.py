"""What a fix says of one job: whether it applies, how to apply it here, or why it cannot help."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """`at_most_ms` bounds what it can take off the step: None is "all that its causes could give back"."""

    applies: bool
    how: str = ""
    why_not: str = ""
    at_most_ms: float | None = None
    shorter_step: bool = True  # False: it does more in a step, and the step gets no shorter
    moves: tuple[str, ...] | None = None  # the causes it moves in this job, where not all of its own
    after_others: bool = False  # it needs what another fix of its cause does first

    @property
    def undecided(self) -> bool:
        """Nobody knows whether it helps: it is neither prescribed nor refused."""
        return not self.applies and self.at_most_ms is None


def use(how: str, at_most_ms: float | None = None, moves: tuple[str, ...] | None = None) -> Advice:
    """It applies, in this way."""
    return Advice(True, how=how, at_most_ms=at_most_ms, moves=moves)


def no_use(why_not: str) -> Advice:
    """There is nothing here for it to move."""
    return Advice(False, why_not=why_not, at_most_ms=0.0)


def cannot_tell(why_not: str) -> Advice:
    """The trace does not hold what would decide it."""
    return Advice(False, why_not=why_not)
