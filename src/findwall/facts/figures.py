"""The figures of a cause: what it takes of the step, in which steps, and what of that can be saved.

They are claims: what the trace does not say is left out, or named as missing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from findwall.facts.facts import Facts, time_of
from findwall.facts.gains import blind_ms, lacking, step_ms
from findwall.facts.step_traits import on_cores
from findwall.facts.user_lines import sampled
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE, WORTH_IT
from findwall.model.claims import Claim, Figure
from findwall.model.kinds import USUAL, StepKind
from findwall.step.timed_steps import beyond_usual_ns, traced_kinds
from findwall.units import NS_PER_S, ms

# Times a figure: less beyond it is not told. Chosen by hand, not calibrated.
NOTICED_RATIO = 1.01
# Of what is named first: less is not named beside it. Chosen by hand, not calibrated.
SECOND_NAMED_SHARE = 0.1


def amounts(facts: Facts, cause: str) -> dict[str, Figure]:
    """What every verdict opens with."""
    return {
        "spent_ms": facts.spent_ms(cause),
        "step_ms": ms(facts.step),
        "spent_share": facts.share(cause),
        "on_cores": on_cores(facts),
    }


def no_other(facts: Facts) -> Claim:
    """What stands beside a roof: whether another cause is worth it."""
    gain = facts.recoverable()
    best = next(iter(gain.ranked()), None)
    if best is None or gain[best] < WORTH_IT * facts.step:
        return Claim("beside/nothing", {"worth_share": WORTH_IT})
    return Claim("beside/next-best", {"cause": best, "gain_share": gain[best] / facts.step})


def told(
    facts: Facts,
    cause: str,
    fact: Claim,
    action: Claim,
    saves: Claim | None = None,
    named: StepKind | None = None,
) -> Claim:
    """The verdict: what fills the step, in which steps, what to do about it, what that saves.

    `saves`: what just that gives, where it is not all that the cause could give back; `named`: the steps that
    the fact names already."""
    which = worst_kind(facts, cause, named)
    parts = [fact, *([which] if which is not None else []), action, saves or gain(facts, cause)]
    return Claim("verdict/told", parts=parts)


def gain(facts: Facts, cause: str) -> Claim:
    """The most that a fix saves."""
    value, lacks = facts.recoverable_ms(cause), lacking(facts)
    if value is None:
        return Claim("gain/unknown", parts=[lacks or Claim("lacking/model")])
    work = time_of(facts, facts.atoms.of(cause))
    # Idle time is known without any floor.
    doubt = [lacks] if lacks is not None and work > MAJORITY_SHARE * facts.spent_ms(cause) else []
    # A fix can save more than its cause takes: what stands behind the cause goes as well.
    most = max(value, facts.replayed.get(cause, 0.0))
    figures: dict[str, Figure] = {"behind": most > NOTICED_RATIO * facts.spent_ms(cause)}
    # A kernel without a floor may go whole: what it takes is part of the most.
    blind = blind_ms(facts, cause)
    if blind > MENTION_SHARE * step_ms(facts) and not doubt:
        figures, most = {"behind": False, "blind_ms": blind}, most + blind
    if most <= 0:
        return Claim("gain/nothing")
    return Claim("gain/saves", {"saves_ms": most, **figures}, parts=doubt)


# -- kinds of steps ------------------------------------------------------------------------------------

SEEN = ("saving", "evaluation")  # what a hook names
# What a hook saw such steps do, and the causes that its time goes to.
CARRIES = {"saving": ("host-work", "host-sync"), "loader-start": ("loader-starved",)}


def seen_doing(kind: StepKind, workers: int | None) -> Claim | None:
    """What a hook saw such steps do."""
    if kind.doing == "loader-start":
        return Claim("steps/restart-workers" if workers else "steps/restart-loader")
    return Claim(f"steps/{kind.doing}") if kind.doing in SEEN else None


def what_it_does(facts: Facts, kind: StepKind) -> Claim | None:
    """As a hook saw it, else as the trace shows it; nothing where neither does."""
    told = seen_doing(kind, facts.rank.loader_workers)
    if told is not None or kind.name == USUAL:
        return told
    cause = _idles_for(facts, kind.name)
    if cause is None:
        return None
    line = sampled(facts, between_ops=True) if cause == "host-work" else None
    if line is None:
        return Claim("steps/wait", {"cause": cause})
    return Claim("steps/wait", {"cause": cause}, {"function": line.function}, [line.place])


def _idles_for(facts: Facts, name: str) -> str | None:
    """The cause of most of the idle time that traced steps of a kind have beyond usual ones."""
    kinds = np.array(traced_kinds(facts.rank, facts.timeline, facts.queue))
    if not (kinds == name).any() or not (kinds == USUAL).any():
        return None
    gaps = facts.reading.likely.gaps
    step = facts.queue.step[facts.queue.positions(gaps.row)]
    beyond = {}
    for cause, column in gaps.before.items():
        # The columns count each row as much as its kind does in the mean: that is taken off again.
        weight = facts.graph.weight[facts.graph.rows]
        plain = np.divide(column, weight, out=np.zeros(len(column)), where=weight > 0)
        of_step = np.bincount(step, plain, minlength=len(kinds))
        beyond[cause] = float(of_step[kinds == name].mean() - of_step[kinds == USUAL].mean())
    most = max(beyond, key=lambda cause: beyond[cause], default=None)
    total = sum(value for value in beyond.values() if value > 0)
    return most if most is not None and beyond[most] > MAJORITY_SHARE * total > 0 else None


def kinds_of(facts: Facts) -> tuple[StepKind, ...]:
    """The kinds of steps, with the lengths they have on the device where all of them were traced and the host
    runs ahead in one: its clock tells kinds apart, but such a step seems shorter to it than its work.
    """
    timed = facts.rank.step_times
    if timed is None or facts.reading.source != "measured":
        return ()
    kinds = timed.kinds()
    if facts.graph.share is None or facts.reading.likely.rare:
        return kinds
    traced = np.array(traced_kinds(facts.rank, facts.timeline, facts.queue))
    replay = facts.reading.likely.gaps.replay
    length = np.bincount(
        facts.graph.step[facts.graph.rows], replay.gap + replay.busy, minlength=facts.graph.steps
    )
    scale = facts.step / max(replay.step, 1.0) / NS_PER_S
    busy = (
        np.bincount(facts.graph.step[facts.graph.rows], replay.busy, minlength=facts.graph.steps) / NS_PER_S
    )
    if all(kind.mean >= float(busy[traced == kind.name].mean()) for kind in kinds if kind.name in traced):
        return kinds
    return tuple(
        replace(kind, mean=float(length[traced == kind.name].mean()) * scale)
        if (traced == kind.name).any()
        else kind
        for kind in kinds
    )


def step_without_rare(facts: Facts, causes: tuple[str, ...]) -> float:
    """The mean step, ns, if steps that are long for one of these causes were as the usual ones are; as long
    as it is now where none is. Usual steps under a profiler are longer than those that were timed."""
    timed = facts.rank.step_times
    kinds = timed.kinds() if timed is not None and facts.reading.source == "measured" else ()
    others = [kind for kind in kinds if kind.name != USUAL]
    gone = tuple(kind for kind in others if any(_carries(facts, kind, one) for one in causes))
    return facts.step - beyond_usual_ns(facts.rank, gone)


def restarts(facts: Facts) -> StepKind | None:
    """Steps that are long because the loader's workers start again."""
    if not facts.rank.loader_workers:
        return None
    return next((kind for kind in kinds_of(facts) if kind.doing == "loader-start"), None)


def restarting_ms(facts: Facts) -> float:
    """What steps in which the loader's workers start again take beyond usual ones, in ms a step."""
    again = restarts(facts)
    usual = next((kind for kind in kinds_of(facts) if kind.name == USUAL), None)
    if again is None or usual is None:
        return 0.0
    return max(again.share * (again.mean - usual.mean), 0.0) * 1e3


def longer_steps(kind: StepKind, usual: StepKind, what: Claim | None) -> Claim:
    """How often steps of a kind come, how long they take and what they do."""
    figures: dict[str, Figure] = {
        "every": kind.every,
        "steps_share": kind.share,
        "long_ms": kind.mean * 1e3,
        "usual_ms": usual.mean * 1e3,
    }
    return Claim("steps/longer", figures, parts=[what] if what is not None else [])


def worst_kind(facts: Facts, cause: str, named: StepKind | None = None) -> Claim | None:
    """The steps that a cause is worst in, where they are not `named` already; None where there are none."""
    kinds = kinds_of(facts)
    usual = next((kind for kind in kinds if kind.name == USUAL), None)
    if usual is None:
        return None
    extra = {kind: kind.share * (kind.mean - usual.mean) * NS_PER_S for kind in kinds}
    worst = max(extra, key=lambda kind: extra[kind])
    if extra[worst] < WORTH_IT * facts.step or worst == named or not _carries(facts, worst, cause):
        return None
    return longer_steps(worst, usual, what_it_does(facts, worst))


def _carries(facts: Facts, kind: StepKind, cause: str) -> bool:
    """Whether what makes such steps long is what the verdict names."""
    if cause == "unstable-steps" or cause in CARRIES.get(kind.doing, ()):
        return True
    return not kind.doing and _idles_for(facts, kind.name) == cause
