"""Which fixes move this wall, what the step will be with each, and why the popular others cannot help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf, log
from typing import get_args

import msgspec
from msgspec.structs import replace

from findwall.facts.best_changes import best_step, ideal
from findwall.facts.facts import Facts
from findwall.facts.figures import step_without_rare
from findwall.facts.gains import blind_ms, is_blind, step_ms
from findwall.fixes import Fix, NoUse, Safety, Use, all_fixes
from findwall.fixes.predict import Prediction, moved_by, predict
from findwall.fixes.probed_uses import as_probed
from findwall.model.catalogue import MENTION_SHARE, NEARLY_ALL, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.claims import Claim, Figures
from findwall.model.diagnosis import NO_GAIN, Basis, NotWorthIt, Prescription, Range
from findwall.replay.change import Change
from findwall.units import NS_PER_MS, ms

MOST_REFUSED = 6  # popular fixes that are said not to help. Chosen by hand, not calibrated.
ROUNDING_MS = 1e-3  # off the step: less is rounding, a microsecond being the last digit shown
SAFETIES = get_args(Safety)
ALIKE = 1.0 + SMALL_PART  # times as long: of two predictions no further apart neither is the better one
STACKED, PAIRED = 4, 3  # fixes, the best ones, that are played together: of these all, of those each two
MOST_STACKS = 4  # shown
# Fixes that are two ways to the same end: nobody makes both.
APART = (
    {"tf32", "bf16-autocast"},
    {"tf32", "fp16-autocast"},
    {"cuda-graphs", "torch-compile"},
    {"cuda-graphs", "reduce-overhead"},
    {"torch-compile", "reduce-overhead"},
    {"torch-compile", "autotune-kernels"},
    {"reduce-overhead", "autotune-kernels"},
    {"compile-blocks", "torch-compile"},
    {"compile-blocks", "reduce-overhead"},
    {"compile-blocks", "autotune-kernels"},
    {"torch-compile", "builtin-ops"},
    {"reduce-overhead", "builtin-ops"},
    {"pin-memory", "prefetch-batches"},
    {"fused-optimizer", "foreach-optimizer"},
    {"fused-loss", "torch-compile"},
    {"fused-loss", "reduce-overhead"},
    {"fused-loss", "fewer-casts"},
    {"lookup-not-onehot", "fewer-casts"},
)


# Of those, what asks for less: a switch, then an op by another name, then kernels that nobody has seen yet,
# then those in a graph that must be kept from changing.
PLAINEST = (
    *("tf32", "bf16-autocast", "fp16-autocast", "pin-memory", "prefetch-batches"),
    *(
        "fused-optimizer",
        "foreach-optimizer",
        "builtin-ops",
        "fused-loss",
        "lookup-not-onehot",
        "fewer-casts",
    ),
    *("torch-compile", "compile-blocks", "autotune-kernels", "reduce-overhead", "cuda-graphs"),
)
# What can be said of whatever is slow: it names nothing that the job does, nor does its bound what it gives.
OF_ANYTHING = frozenset({"custom-kernels", "larger-batch", "smaller-model", "better-hardware"})


class _Ledger(msgspec.Struct, frozen=True):
    """The step and what each cause could give back, in ms; unknown is absent."""

    step: float
    gain: dict[str, float]

    def of(self, causes: tuple[str, ...]) -> float:
        return sum(self.gain.get(cause, 0.0) for cause in causes)


class _Candidate(msgspec.Struct, frozen=True):
    name: str
    fix: Fix
    outcome: Use
    moves: tuple[str, ...]  # in this job
    at_most: float  # ms off the step, by the replay of the fix at its best
    predicted: Range | None = None  # the step in ms; None: nobody can tell, the bound alone is known
    basis: Basis | None = None  # what that rests on
    least: float | None = None  # the step at best, ms; None where that is not known
    is_blind: bool = False  # so much of it that the bound is not known either

    @property
    def mid(self) -> float | None:
        return self.predicted.mid if self.predicted is not None else None


def prescribe(
    facts: Facts, cause: str | None, for_trial: Sequence[str] = ()
) -> tuple[list[Prescription], list[NotWorthIt]]:
    """Fixes of the verdict's cause first, then of what else is worth it; and the popular ones left out.

    `cause` None: there is no verdict. Then only what moves one of `for_trial` is prescribed, causes that are
    known to take their time whatever the wall is: fixes that a trial can prove, each with its bound alone.
    """
    ledger = _ledger(facts)
    said = {name: as_probed(facts, fix.advise(facts)) for name, fix in all_fixes().items()}
    used = {name: one for name, one in said.items() if isinstance(one, Use)}
    if cause is not None:
        targets = _targets(cause, ledger)
        candidates = [_candidate(name, one, facts, ledger) for name, one in used.items()]
    else:
        targets = [one for one in for_trial if ledger.gain.get(one, 0.0) >= WORTH_IT * ledger.step]
        candidates = _provable(used, targets, facts, ledger)
    found = _choose(candidates, targets, ledger) if targets else []
    doubtful = {one.name: _for_trial(one, ledger) for one, _ in found if _may_be_slower(one, ledger)}
    chosen = _ranked([(one, moved) for one, moved in found if one.name not in doubtful], cause)
    prescriptions = [_prescription(candidate, moved, ledger) for candidate, moved in chosen]
    prescriptions += _stacks(facts, [one for one, _ in chosen], ledger)
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


def _ledger(facts: Facts) -> _Ledger:
    gain = {cause: ms(value) for cause, value in facts.recoverable().items() if value > 0}
    return _Ledger(step_ms(facts), gain)


def _candidate(name: str, outcome: Use, facts: Facts, ledger: _Ledger) -> _Candidate:
    """A fix that applies, and what the step loses by it at best."""
    fix = all_fixes()[name]
    at_most = ledger.step - ms(step_at_best(fix, outcome, facts)) if outcome.shorter_step else 0.0
    moves = outcome.moves or fix.moves
    floors = () if fix.removes else moves  # what those of the work that stays must tell
    blind = is_blind(facts, *floors) and outcome.shorter_step
    found = None
    if at_most >= MENTION_SHARE * ledger.step:  # what could give nothing at best is not played again
        found = predict(facts, {name: outcome})
    predicted = in_ms(found, ledger.step - at_most)
    basis = found.basis if found is not None else None
    least = ledger.step - at_most if outcome.shorter_step and not blind else None
    at_most = max(at_most, 0.0) + (blind_ms(facts, *floors) if blind else 0.0)
    return _Candidate(name, fix, outcome, moves, at_most, predicted, basis, least, blind)


def _provable(used: dict[str, Use], targets: list[str], facts: Facts, ledger: _Ledger) -> list[_Candidate]:
    """Fixes of these causes that a trial can make. Beside a wall that nobody knows none has a prediction."""
    able = {name: fix for name, fix in all_fixes().items() if fix.trial is not None}
    return [
        replace(_candidate(name, one, facts, ledger), predicted=None, basis=None)
        for name, one in used.items()
        if name in able and not set(targets).isdisjoint(one.moves or able[name].moves)
    ]


def in_ms(found: Prediction | None, best: float) -> Range | None:
    """A prediction that no bound contradicts: the low end is what cannot be beaten, at least, but for what
    the host differs by from run to run."""
    if found is None:
        return None
    mid = max(ms(found.mid), best)
    return Range(min(max(ms(found.low), best * found.noise), mid), mid, mid * found.high / found.mid)


def step_at_best(fix: Fix, outcome: Use, facts: Facts) -> float:
    """The step, in ns, with all done that a fix could do: no real one should be faster."""
    moves = outcome.moves or fix.moves
    return min(best_step(facts, _at_best(facts, outcome, moves), moves), step_without_rare(facts, moves))


def together_at_best(
    outcomes: dict[str, Use], facts: Facts, alone: Mapping[str, float] | None = None
) -> float:
    """The same with several fixes made at once, by their names, or one of them alone where others do harm.

    `alone`: the step of each at its best, in ms, where that is known already.
    """
    changes = [_at_best(facts, one, one.moves or all_fixes()[name].moves) for name, one in outcomes.items()]
    if alone is None:
        steps = [step_at_best(all_fixes()[name], outcome, facts) for name, outcome in outcomes.items()]
    else:
        steps = [step * NS_PER_MS for step in alone.values()]
    return min(best_step(facts, sum(changes, Change()), moved_by(outcomes)), *steps)


def _at_best(facts: Facts, outcome: Use, moves: tuple[str, ...]) -> Change:
    return outcome.best if outcome.best is not None else ideal(facts, *moves)


def _targets(cause: str, ledger: _Ledger) -> list[str]:
    """Causes worth a fix: the verdict's, then whatever else gives back enough, the most first."""
    worth = sorted(ledger.gain, key=lambda one: -ledger.gain[one])
    others = [one for one in worth if ledger.gain[one] >= WORTH_IT * ledger.step]
    return list(dict.fromkeys([cause, *others]))


def _choose(
    candidates: list[_Candidate], targets: list[str], ledger: _Ledger
) -> list[tuple[_Candidate, str]]:
    chosen: dict[str, tuple[_Candidate, str]] = {}
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


def _rank(one: _Candidate, cause: str) -> tuple[int, float, int, str]:
    """A fix made for the cause first, then the one that could give more, then the one that risks less."""
    gain = one.at_most if one.outcome.shorter_step else 0.0
    place = one.fix.moves.index(cause) + one.outcome.after_others
    return place, -gain, SAFETIES.index(one.fix.safety), one.name


def _ranked(chosen: list[tuple[_Candidate, str]], cause: str | None) -> list[tuple[_Candidate, str]]:
    """What can be done as it stands, then what is no better than a plainer way to the same end, then what
    needs something else first, then what does more in a step. Of each the shortest step first."""

    def group(one: _Candidate) -> int:
        if cause not in ROOFS and not one.outcome.shorter_step:
            return 3
        if one.outcome.after_others:
            return 2
        return int(any(_is_as_good_and_plainer(other, one) for other, _ in chosen))

    groups = [[pair for pair in chosen if group(pair[0]) == at] for at in range(4)]
    return [pair for one in groups for pair in _by_step(one, cause)]


def _by_step(chosen: list[tuple[_Candidate, str]], cause: str | None) -> list[tuple[_Candidate, str]]:
    """The shortest step first that is sure, the upper end of its interval; of those that are alike what moves
    the wall, in the order it was chosen. A bound promises nothing: a fix of the wall that has only that goes
    before what can hardly be as short, and whatever else has only that comes last."""
    ends = [one.predicted.high or inf for one, _ in chosen if one.predicted is not None]
    shortest = min(ends, default=inf)

    def place(pair: tuple[_Candidate, str]) -> tuple[int, bool]:
        high = pair[0].predicted.high if pair[0].predicted is not None else None
        return int(log((high or inf) / shortest) / log(ALIKE)) if high else 0, pair[1] != cause

    found = sorted((pair for pair in chosen if pair[0].predicted is not None), key=place)
    bounded = [pair for pair in chosen if pair[0].predicted is None]
    for pair in sorted(bounded, key=lambda pair: pair[1] != cause):
        behind = (
            at for at, other in enumerate(found) if pair[1] == cause and _goes_before(pair[0], *other, cause)
        )
        found.insert(next(behind, len(found)), pair)
    return found


def _goes_before(bounded: _Candidate, other: _Candidate, moved: str, cause: str | None) -> bool:
    """Whether a fix of the wall that has only a bound goes before one that has more: its step is surely
    longer. What may not be possible does not go before what moves the wall too, and surely is."""
    if bounded.least is None or bounded.name in OF_ANYTHING or other.predicted is None:
        return False
    longer = (other.predicted.low or 0.0) > bounded.least
    return longer and (not bounded.outcome.condition or moved != cause)


def _is_as_good_and_plainer(one: _Candidate, other: _Candidate) -> bool:
    """Of two ways to the same end, with as short a step."""
    if {one.name, other.name} not in APART or one.predicted is None or other.predicted is None:
        return False
    plainer = PLAINEST.index(one.name) < PLAINEST.index(other.name)
    return plainer and (one.predicted.high or inf) <= ALIKE * (other.predicted.high or 0.0)


def _may_be_slower(one: _Candidate, ledger: _Ledger) -> bool:
    """Whether a fix gains next to nothing, or its interval holds a longer step as well."""
    if one.predicted is None or one.predicted.mid is None or one.predicted.high is None:
        return False
    mid, high = one.predicted.mid / ledger.step, one.predicted.high / ledger.step
    hardly, may_lose = mid > 1.0 - WORTH_IT and high > 1.0, mid > NEARLY_ALL and high > 1.0 + WORTH_IT
    return mid > 1.0 - MENTION_SHARE or hardly or may_lose


def _for_trial(one: _Candidate, ledger: _Ledger) -> NotWorthIt:
    assert one.predicted is not None
    mid = one.predicted.mid or 0.0
    said = "trial"
    if mid > (1.0 - MENTION_SHARE) * ledger.step:
        said = "likely-slower" if mid > (1.0 + MENTION_SHARE) * ledger.step else "no-gain"
    figures = {"low_ms": one.predicted.low, "mid_ms": mid, "high_ms": one.predicted.high}
    return _not_worth(one, ledger, Claim(f"refused/{said}", {**figures, "step_ms": ledger.step}))


def _not_worth(one: _Candidate, ledger: _Ledger, claim: Claim) -> NotWorthIt:
    least = ledger.step - one.at_most
    return NotWorthIt([one.name], ledger.step / least if least > 0 else None, "", claim=claim)


def _stacks(facts: Facts, chosen: list[_Candidate], ledger: _Ledger) -> list[Prescription]:
    """The best few made together: pairs, and one after the other what shortens the step further."""
    few = _best_of_each_kind(chosen)[:STACKED]
    found: dict[tuple[str, ...], Prescription] = {}

    def shortens(group: tuple[_Candidate, ...]) -> bool:
        """Whether some fixes together are well below what fewer of them give; if so they are found."""
        names = tuple(one.name for one in group)
        if _exclude_each_other(group):
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
    facts: Facts, best: Prescription, chosen: list[_Candidate], ledger: _Ledger
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
            if {one.name, other.name} not in APART or _exclude_each_other(made) or not alike:
                continue
            found = _together(facts, made, ledger)
            most = min(step, *((1.0 - WORTH_IT) * (fix.mid or 0.0) for fix in made))  # each adds to it
            if found is not None and step / ALIKE <= (found.step_ms.mid or 0.0) <= most:
                return found
    return None


def is_another_way(one: Prescription, other: Prescription) -> bool:
    """Whether two stacks are one, with another way to what one of its fixes does."""
    return len(one.fixes) > 1 and set(one.fixes) ^ set(other.fixes) in APART


def _exclude_each_other(group: tuple[_Candidate, ...]) -> bool:
    return any({one.name for one in group} >= pair for pair in APART)


def _best_of_each_kind(chosen: list[_Candidate]) -> list[_Candidate]:
    """Those with a prediction; of two ways to the same end the one that gives more."""
    found: list[_Candidate] = []
    for one in chosen:
        rivals = [other.mid for other in found if {one.name, other.name} in APART and other.mid]
        if one.mid is not None and all(one.mid < (1.0 - WORTH_IT) * mid for mid in rivals):
            found.append(one)
    return found


def _together(facts: Facts, group: tuple[_Candidate, ...], ledger: _Ledger) -> Prescription | None:
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
        moves=_worth_naming(moves, ledger),
        step_ms=step,
        speedup=speedup(step, ledger.step),
        safety=safety,
        how="",
        basis=played.basis,
        claim=Claim("prescribed/together", parts=[Claim("fix/name", {"fix": name}) for name in uses]),
    )


def _worth_naming(moves: tuple[str, ...], ledger: _Ledger) -> list[str]:
    return [name for name in moves if ledger.gain.get(name, 0.0) >= MENTION_SHARE * ledger.step]


def speedup(step: Range, now: float) -> Range:
    ends = (now / value if value else None for value in (step.high, step.mid, step.low))
    return Range(*ends)


def _prescription(one: _Candidate, cause: str, ledger: _Ledger) -> Prescription:
    moves = _worth_naming(one.moves, ledger)
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


def _refusal(one: _Candidate, facts: Facts, ledger: _Ledger) -> NotWorthIt | None:
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
