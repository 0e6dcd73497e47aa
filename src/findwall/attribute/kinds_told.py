"""What steps of each kind do that usual ones do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.kinds import traced_kinds
from findwall.attribute.places import sampled
from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Claim, Figure
from findwall.model.kinds import USUAL, StepKind
from findwall.units import NS_PER_S

# Of what such a step idles beyond a usual one: a cause with less is not what it does. Chosen by hand.
EXPLAINS_SHARE = 0.5
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
    return most if most is not None and beyond[most] > EXPLAINS_SHARE * total > 0 else None


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
    usual = next((kind for kind in kinds if kind.name == USUAL), None)
    if usual is None:
        return facts.step
    gone = [kind for kind in kinds if kind is not usual and any(_carries(facts, kind, one) for one in causes)]
    return facts.step - sum(kind.share * max(kind.mean - usual.mean, 0.0) for kind in gone) * NS_PER_S


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
