"""Which fixes move this wall, what the step will be with each, and why the popular others cannot help."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, NoUse, Outcome, Use, all_fixes
from findwall.fixes.candidates import (
    SAFETIES,
    Candidate,
    Ledger,
    ledger_of,
    provable,
    speedup,
    weighed,
    worth_naming,
)
from findwall.fixes.ordering import ranked
from findwall.fixes.probed_uses import as_probed
from findwall.fixes.stacked import stacks
from findwall.model.catalogue import MENTION_SHARE, NEARLY_ALL, ROOFS, WORTH_IT
from findwall.model.claims import Claim, Figures, Range
from findwall.model.diagnosis import NO_GAIN, NotWorthIt, Prescription
from findwall.step.step_facts import found_once
from findwall.units import ms

MOST_REFUSED = 6  # popular fixes that are said not to help. Chosen by hand, not calibrated.
WORTH_A_TRIAL = "refused/trial"  # of a fix whose interval holds a gain and a loss
ROUNDING_MS = 1e-3  # off the step: less is rounding, a microsecond being the last digit shown


def prescribe(
    facts: Facts, cause: str | None, for_trial: Sequence[str] = ()
) -> tuple[list[Prescription], list[NotWorthIt]]:
    """Fixes of the verdict's cause first, then of what else is worth it; and the popular ones left out.

    `cause` None: there is no verdict. Then only what moves one of `for_trial` is prescribed, causes that are
    known to take their time whatever the wall is: fixes that a trial can prove, each with its bound alone.
    """
    ledger = ledger_of(facts)
    said = outcomes(facts)
    used = {name: one for name, one in said.items() if isinstance(one, Use)}
    if cause is not None:
        targets = _targets(cause, ledger)
        candidates = [weighed(name, one, facts, ledger) for name, one in used.items()]
    else:
        targets = [one for one in for_trial if ledger.gain.get(one, 0.0) >= WORTH_IT * ledger.step]
        candidates = provable(used, targets, facts, ledger)
    found = _choose(candidates, targets, ledger) if targets else []
    doubtful = {one.name: _for_trial(one, ledger) for one, _ in found if _may_be_slower(one, ledger)}
    chosen = ranked([(one, moved) for one, moved in found if one.name not in doubtful], cause)
    prescriptions = [_prescription(candidate, moved, ledger) for candidate, moved in chosen]
    prescriptions += stacks(facts, [one for one, _ in chosen], ledger)
    taken = {candidate.name for candidate, _ in chosen}
    no_use = {name: one for name, one in said.items() if isinstance(one, NoUse)}
    refused = {name: NotWorthIt([name], NO_GAIN, "", one.obvious, one.claim) for name, one in no_use.items()}
    if cause is not None:  # without a verdict nobody knows what is worth it
        for one in candidates:
            if one.name not in taken and (why := _refusal(one, facts, ledger)) is not None:
                refused[one.name] = why
        refused |= doubtful
    tried = {name: fix.tried for name, fix in all_fixes().items() if fix.tried is not None}
    left = sorted((name for name in refused if name in tried), key=lambda name: (tried[name], name))
    left = [*doubtful, *(name for name in left if name not in doubtful)]
    return prescriptions, [refused[name] for name in left[:MOST_REFUSED]]


@found_once
def outcomes(facts: Facts) -> dict[str, Outcome]:
    """What every fix says of this job, by its id, after both forms of a rewrite where those were run."""
    return {name: as_probed(facts, fix.advise(facts)) for name, fix in all_fixes().items()}


def left_out(
    facts: Facts, prescriptions: Sequence[Prescription], refusals: Sequence[NotWorthIt]
) -> frozenset[str]:
    """All fixes that are of no use or not worth it here, listed or not: no sentence advises one of those. It
    may name one of which nobody can tell, or that is worth a trial."""
    known = {name for name, one in outcomes(facts).items() if not isinstance(one, CannotTell)}
    open_ = [one.fixes for one in refusals if one.claim is not None and one.claim.id == WORTH_A_TRIAL]
    return frozenset(known.difference(*(one.fixes for one in prescriptions), *open_))


def _targets(cause: str, ledger: Ledger) -> list[str]:
    """Causes worth a fix: the verdict's, then whatever else gives back enough, the most first."""
    worth = sorted(ledger.gain, key=lambda one: -ledger.gain[one])
    others = [one for one in worth if ledger.gain[one] >= WORTH_IT * ledger.step]
    return list(dict.fromkeys([cause, *others]))


def _choose(candidates: list[Candidate], targets: list[str], ledger: Ledger) -> list[tuple[Candidate, str]]:
    chosen: dict[str, tuple[Candidate, str]] = {}
    for cause in targets:
        if cause not in ROOFS and ledger.gain.get(cause, 0.0) <= 0:
            continue
        # What the verdict names is shown with its fixes, also where the next wall stands close behind.
        least = max((MENTION_SHARE if cause == targets[0] else WORTH_IT) * ledger.step, ROUNDING_MS)
        fitting = [
            one
            for one in candidates
            if cause in one.moves and (cause in ROOFS or not one.outcome.shorter_step or one.at_most >= least)
        ]
        for one in sorted(fitting, key=lambda one: _rank(one, cause)):
            chosen.setdefault(one.name, (one, cause))
    # Several small causes can add up to what is worth a fix that moves them all.
    left = {one.name: inf if one.fix.removes else ledger.of(one.moves) for one in candidates}
    rest = [one for one in candidates if min(one.at_most, left[one.name]) >= WORTH_IT * ledger.step]
    for one in sorted(rest, key=lambda one: (-one.at_most, SAFETIES.index(one.fix.safety), one.name)):
        if one.outcome.shorter_step:
            cause = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
            chosen.setdefault(one.name, (one, cause))
    return list(chosen.values())


def _rank(one: Candidate, cause: str) -> tuple[int, float, int, str]:
    """A fix made for the cause first, then the one that could give more, then the one that risks less."""
    gain = one.at_most if one.outcome.shorter_step else 0.0
    place = one.fix.moves.index(cause) + one.outcome.after_others
    return place, -gain, SAFETIES.index(one.fix.safety), one.name


def _may_be_slower(one: Candidate, ledger: Ledger) -> bool:
    """Whether a fix gains next to nothing, or its interval holds a longer step as well."""
    if one.predicted is None or one.predicted.mid is None or one.predicted.high is None:
        return False
    mid, high = one.predicted.mid / ledger.step, one.predicted.high / ledger.step
    hardly, may_lose = mid > 1.0 - WORTH_IT and high > 1.0, mid > NEARLY_ALL and high > 1.0 + WORTH_IT
    return mid > 1.0 - MENTION_SHARE or hardly or may_lose


def _for_trial(one: Candidate, ledger: Ledger) -> NotWorthIt:
    assert one.predicted is not None
    mid = one.predicted.mid or 0.0
    said = WORTH_A_TRIAL
    if mid > (1.0 - MENTION_SHARE) * ledger.step:
        said = "refused/likely-slower" if mid > (1.0 + MENTION_SHARE) * ledger.step else "refused/no-gain"
    figures = {"low_ms": one.predicted.low, "mid_ms": mid, "high_ms": one.predicted.high}
    return _not_worth(one, ledger, Claim(said, {**figures, "step_ms": ledger.step}))


def _not_worth(one: Candidate, ledger: Ledger, claim: Claim) -> NotWorthIt:
    least = ledger.step - one.at_most
    return NotWorthIt([one.name], ledger.step / least if least > 0 else None, "", claim=claim)


def _prescription(one: Candidate, cause: str, ledger: Ledger) -> Prescription:
    moves = worth_naming(one.moves, ledger)
    if cause not in moves:
        moves.insert(0, cause)
    # At a roof nothing is recoverable: what is left is another job, of which no bound is known.
    # Nor where nothing at all would remain: some of the step must.
    known = cause not in ROOFS or one.predicted is not None or one.fix.removes
    bounded = one.outcome.shorter_step and known
    bounded &= 0 < one.at_most < ledger.step - ROUNDING_MS and not one.is_blind
    step = Range(low=ledger.step - one.at_most) if bounded else Range()
    if bounded and one.predicted is not None:
        step = one.predicted
    return Prescription(
        fixes=[one.name],
        moves=moves,
        step_ms=step,
        speedup=speedup(step, ledger.step),
        safety=one.fix.safety,
        how="",
        basis=one.basis if bounded else None,
        parameters=one.outcome.parameters,
        places=one.outcome.places,
        condition=one.outcome.condition,
        claim=one.outcome.claim,
    )


def _refusal(one: Candidate, facts: Facts, ledger: Ledger) -> NotWorthIt | None:
    """By the replay that predictions use: with all done that it could do the step is hardly shorter, or the
    step that is predicted is. None where neither shows that: nobody can say then that it is not worth it."""
    if one.is_blind:
        return None
    if one.at_most >= WORTH_IT * ledger.step:
        hardly = one.mid is not None and one.mid > (1.0 - WORTH_IT) * ledger.step
        return _for_trial(one, ledger) if hardly else None
    what = max(one.moves, key=lambda name: ledger.gain.get(name, 0.0))
    figures: Figures = {"cause": what, "saves_ms": one.at_most, "step_ms": ledger.step}
    said = "little"
    if one.at_most < ROUNDING_MS:  # the wall that stands is another one only if the cause alone gives nothing
        said = "another-wall" if ms(facts.saved((what,))) < ROUNDING_MS else "nothing"
    return _not_worth(one, ledger, Claim(f"refused/{said}", figures))
