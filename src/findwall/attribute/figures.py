"""The figures of a cause: what it takes of the step, what of that can be saved, how often it occurs.

They are claims: what the trace does not say is left out, or named as missing.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_kind import device_word, on_cores
from findwall.attribute.facts import Facts
from findwall.attribute.kinds_told import worst_kind
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE, WORTH_IT
from findwall.model.claims import Claim, Figure, known
from findwall.model.kinds import StepKind
from findwall.units import ms

# Times a figure: less beyond it is not told. Chosen by hand, not calibrated.
NOTICED_RATIO = 1.01
# Of what is named first: less is not named beside it. Chosen by hand, not calibrated.
SECOND_NAMED_SHARE = 0.1
# Counts per step, printed as whole numbers. Chosen by hand, not calibrated.
ABOUT_ONCE = (0.95, 1.05)  # "1 call"; below it the fraction is shown
NO_MODEL = "these kernels have no model"


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
    atoms = facts.atoms.of(cause)
    work = ms(float(facts.own[atoms].sum()))
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


def lacking(facts: Facts) -> Claim | None:
    """What keeps floors from being known, if anything does."""
    if not facts.ceilings.known:
        return Claim("lacking/ceilings", {"on_cores": on_cores(facts)}, known(device=facts.ceilings.device))
    header = facts.timeline.header
    if not header.shapes and not facts.timeline.details.inputs:
        return Claim("lacking/shapes", {"recorder": header.recorder})
    return None


def missing(facts: Facts) -> str | None:
    """The same as the end of a sentence."""
    if not facts.ceilings.known:
        name = facts.ceilings.device or "the trace does not name it"
        return f"this {device_word(facts)}'s ceilings are unknown: {name}"
    if not facts.timeline.header.shapes and not facts.timeline.details.inputs:
        return f"the trace has no shapes: {facts.timeline.header.shapes_option}"
    return None


def calls_text(calls: float) -> str:
    least, most = ABOUT_ONCE
    if calls < least:
        return f"{calls:.2g} calls per step"
    return "1 call" if calls < most else f"{calls:,.0f} calls"


def gain_ms(facts: Facts, *causes: str) -> float:
    """What these causes take above their floors, whatever waits behind them; what is unknown adds nothing."""
    return ms(facts.local().of(causes))


def blind_ms(facts: Facts, *causes: str) -> float:
    """Device time of these causes in kernels without a floor: what of it could come back nobody knows."""
    atoms = np.concatenate([facts.atoms.of(cause) for cause in causes]) if causes else np.zeros(0, np.int64)
    return ms(float(facts.own[atoms[np.isnan(facts.atoms.floor[atoms])]].sum()))


def is_blind(facts: Facts, *causes: str) -> bool:
    """Whether that is so much that a figure of what these causes give back would be wrong."""
    return blind_ms(facts, *causes) > WORTH_IT * step_ms(facts)


def step_ms(facts: Facts) -> float:
    return ms(facts.step)


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
