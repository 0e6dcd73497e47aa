"""In what order fixes are said: what gives the shortest step for sure comes first."""

from __future__ import annotations

from math import inf, log

from findwall.fixes.candidates import ALIKE, Candidate
from findwall.fixes.same_end import is_plainer
from findwall.model.catalogue import ROOFS


def ranked(chosen: list[tuple[Candidate, str]], cause: str | None) -> list[tuple[Candidate, str]]:
    """What all other figures wait for, then what can be done as it stands, then what is no better than a
    plainer way to the same end, then what needs something else first, then what does more in a step. Of each
    the shortest step first."""

    def group(one: Candidate) -> int:
        if one.outcome.before_others:
            return 0
        if cause not in ROOFS and not one.outcome.shorter_step:
            return 4
        if one.outcome.after_others:
            return 3
        return 1 + int(any(_is_as_good_and_plainer(other, one) for other, _ in chosen))

    groups = [[pair for pair in chosen if group(pair[0]) == at] for at in range(5)]
    return [pair for one in groups for pair in _by_step(one, cause)]


def _by_step(chosen: list[tuple[Candidate, str]], cause: str | None) -> list[tuple[Candidate, str]]:
    """The shortest step first that is sure, the upper end of its interval; of those that are alike what asks
    for no compiler, then what moves the wall, in the order it was chosen. A bound promises nothing: a fix of
    the wall that has only that goes before what can hardly be as short, and whatever else has only that comes
    last."""
    ends = [one.predicted.high or inf for one, _ in chosen if one.predicted is not None]
    shortest = min(ends, default=inf)

    def place(pair: tuple[Candidate, str]) -> tuple[int, bool, bool]:
        high = pair[0].predicted.high if pair[0].predicted is not None else None
        steps = int(log((high or inf) / shortest) / log(ALIKE)) if high else 0
        return steps, pair[0].fix.compiles, pair[1] != cause

    found = sorted((pair for pair in chosen if pair[0].predicted is not None), key=place)
    bounded = [pair for pair in chosen if pair[0].predicted is None]
    for pair in sorted(bounded, key=lambda pair: _among_bounds(pair[0], pair[1] != cause)):
        behind = (
            at for at, other in enumerate(found) if pair[1] == cause and _goes_before(pair[0], *other, cause)
        )
        found.insert(next(behind, len(found)), pair)
    return found


def _among_bounds(one: Candidate, moves_other: bool) -> tuple[bool, bool, bool, float]:
    """Of those that have only a bound what moves the wall first; on cores, where most have no more, then what
    was found in this job, the lowest bound first."""
    if not one.on_cores:
        return moves_other, False, False, 0.0
    return moves_other, one.fix.of_anything, not one.is_found, (one.least or inf) if one.is_found else 0.0


def _goes_before(bounded: Candidate, other: Candidate, moved: str, cause: str | None) -> bool:
    """Whether a fix of the wall that has only a bound goes before one that has more: its step is surely
    longer. What may not be possible does not go before what moves the wall too, and surely is; but before
    what is said of anything."""
    if bounded.least is None or bounded.fix.of_anything or other.predicted is None:
        return False
    if bounded.on_cores and not bounded.is_found and other.is_found:
        return False
    longer = (other.predicted.low or 0.0) > ALIKE * bounded.least
    return longer and (not bounded.outcome.condition or moved != cause or other.fix.of_anything)


def _is_as_good_and_plainer(one: Candidate, other: Candidate) -> bool:
    """Of two ways to the same end, with as short a step, as it stands."""
    if not is_plainer(one.name, other.name) or one.predicted is None or other.predicted is None:
        return False
    if one.outcome.after_others and not other.outcome.after_others:
        return False
    return (one.predicted.high or inf) <= ALIKE * (other.predicted.high or 0.0)
