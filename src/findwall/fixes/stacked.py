"""The best few fixes made together."""

from __future__ import annotations

from itertools import combinations
from math import inf

from findwall.facts.facts import Facts
from findwall.fixes.at_best import together_at_best
from findwall.fixes.candidates import ALIKE, SAFETIES, Candidate, Ledger, in_ms, speedup, worth_naming
from findwall.fixes.predict import predict
from findwall.fixes.same_end import are_apart, exclude_each_other, pairs
from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Claim
from findwall.model.diagnosis import Prescription
from findwall.units import ms

STACKED, PAIRED = 4, 3  # fixes, the best ones, that are played together: of these all, of those each two
MOST_STACKS = 4  # shown


def stacks(facts: Facts, chosen: list[Candidate], ledger: Ledger) -> list[Prescription]:
    """The best few made together: pairs, and one after the other what shortens the step further."""
    few = _best_of_each_kind(chosen)[:STACKED]
    found: dict[tuple[str, ...], Prescription] = {}

    def shortens(group: tuple[Candidate, ...]) -> bool:
        """Whether some fixes together are well below what fewer of them give; if so they are found."""
        names = tuple(one.name for one in group)
        if _excluded(group):
            return False
        fewer = [made.step_ms.mid for part, made in found.items() if set(part) < set(names)]
        least = min(mid for mid in [*fewer, *(one.mid for one in group)] if mid is not None)
        made = found.get(names) or _together(facts, group, ledger)
        if made is None or made.step_ms.mid is None or made.step_ms.mid > (1.0 - WORTH_IT) * least:
            return False
        found[names] = made
        return True

    for pair in combinations(few[:PAIRED], 2):
        shortens(pair)
    stack = tuple(few[:1])
    for one in few[1:]:
        stack = (*stack, one) if shortens((*stack, one)) else stack
    ranked = sorted(found.values(), key=lambda one: one.step_ms.mid or 0.0)[:MOST_STACKS]
    other = _another_way(facts, ranked[0], chosen, ledger) if ranked else None
    return ranked if other is None else [ranked[0], other, *ranked[1:]]


def _another_way(
    facts: Facts, best: Prescription, chosen: list[Candidate], ledger: Ledger
) -> Prescription | None:
    """The best stack with another way to what one of its fixes does, where the replay finds that as good.

    What a trace says least about, the host once the device is faster, may make it the shorter one by far: so
    a trial has both, and nobody promises a step that only the other way would make so much shorter.
    """
    named = {one.name: one for one in chosen}
    group, step = [named[name] for name in best.fixes], best.step_ms.mid or 0.0
    for at, one in enumerate(group):
        for other in chosen:
            made = (*group[:at], other, *group[at + 1 :])
            alike = (other.mid or inf) < ALIKE * (one.mid or 0.0)
            if not are_apart(one.name, other.name) or _excluded(made) or not alike:
                continue
            found = _together(facts, made, ledger)
            most = min(step, *((1.0 - WORTH_IT) * (fix.mid or 0.0) for fix in made))  # each adds to it
            if found is not None and step / ALIKE <= (found.step_ms.mid or 0.0) <= most:
                return found
    return None


def is_another_way(one: Prescription, other: Prescription) -> bool:
    """Whether two stacks are one, with another way to what one of its fixes does."""
    return len(one.fixes) > 1 and frozenset(one.fixes) ^ frozenset(other.fixes) in pairs()


def _excluded(group: tuple[Candidate, ...]) -> bool:
    return exclude_each_other(one.name for one in group)


def _best_of_each_kind(chosen: list[Candidate]) -> list[Candidate]:
    """Those with a prediction; of two ways to the same end the one that gives more."""
    found: list[Candidate] = []
    for one in chosen:
        rivals = [other.mid for other in found if are_apart(one.name, other.name) and other.mid]
        if one.mid is not None and all(one.mid < (1.0 - WORTH_IT) * mid for mid in rivals):
            found.append(one)
    return found


def _together(facts: Facts, group: tuple[Candidate, ...], ledger: Ledger) -> Prescription | None:
    uses = {one.name: one.outcome for one in group}
    best = ms(together_at_best(uses, facts, {one.name: ledger.step - one.at_most for one in group}))
    played = predict(facts, uses)
    step = in_ms(played, best)
    if step is None or played is None:
        return None
    moves = tuple(dict.fromkeys(cause for one in group for cause in one.moves))
    safety = max((one.fix.safety for one in group), key=SAFETIES.index)
    return Prescription(
        fixes=list(uses),
        moves=worth_naming(moves, ledger),
        step_ms=step,
        speedup=speedup(step, ledger.step),
        safety=safety,
        how="",
        basis=played.basis,
        claim=Claim("prescribed/together", parts=[Claim("fix/name", {"fix": name}) for name in uses]),
    )
