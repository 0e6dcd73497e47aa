"""The figures of a cause in words: what it takes of the step, what of that can be saved, how often it occurs.

What the trace does not say is left out of a text, or named as missing.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_kind import device_word, on_cores
from findwall.attribute.facts import Facts
from findwall.attribute.kinds_told import told_of_kind
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE, WORTH_IT
from findwall.units import LEAST_SHOWN_MS, format_ms, format_share, ms

# Counts per step, printed as whole numbers. Chosen by hand, not calibrated.
ABOUT_ONCE = (0.95, 1.05)  # "1 call"; below it the fraction is shown
RARELY = 0.5  # rounds to none
MORE_THAN_ONCE = 1.5  # rounds to two
# Times a figure: less beyond it is not told. Chosen by hand, not calibrated.
NOTICED_RATIO = 1.01
# Of what is named first: less is not named beside it. Chosen by hand, not calibrated.
SECOND_NAMED_SHARE = 0.1
NO_MODEL = "these kernels have no model"


def opening(facts: Facts, cause: str) -> str:
    """ "15.5 ms of the 41.3 ms step (37 %)"."""
    spent, step = facts.spent_ms(cause), format_ms(ms(facts.step))
    if spent <= 0:
        return f"Nothing of the {step} step"
    return f"{format_ms(spent)} of the {step} step ({format_share(facts.share(cause))})"


def no_other(facts: Facts) -> str:
    """What stands beside a roof, as the end of a sentence: "no other cause recovers 5 %"."""
    gain = facts.recoverable()
    best = next(iter(gain.ranked()), None)
    if best is None or gain[best] < WORTH_IT * facts.step:
        return f"no other cause recovers {100 * WORTH_IT:.0f} %"
    return f"the next best cause ({best}) recovers {format_share(gain[best] / facts.step)}"


def waiting(facts: Facts, cause: str) -> str:
    """ "For 112 ms of the 300 ms step (37 %) the device waits"; on a CPU the cores do."""
    return f"For {opening(facts, cause)} the {'cores wait' if on_cores(facts) else 'device waits'}"


def told(facts: Facts, cause: str, fact: str, action: str, saves: str = "") -> str:
    """The verdict in two or three sentences: what fills the step, in which steps, what to do about it.
    `saves`: what just that gives, where it is not all that the cause could give back."""
    which = told_of_kind(facts, cause, fact)
    return f"{fact}.{which} {action[:1].upper()}{action[1:]}; {saves or gain(facts, cause)}."


def gain(facts: Facts, cause: str) -> str:
    """The most that a fix saves, as the end of a sentence."""
    value = facts.recoverable_ms(cause)
    if value is None:
        return f"how much that saves is unknown because {missing(facts) or NO_MODEL}"
    atoms = facts.atoms.of(cause)
    work = ms(float(facts.own[atoms].sum()))
    # Idle time is known without any floor.
    doubtful = missing(facts) if work > MAJORITY_SHARE * facts.spent_ms(cause) else None
    doubt = f" (roughly, because {doubtful})" if doubtful else ""
    # A fix can save more than its cause takes: what stands behind the cause goes as well.
    most = max(value, facts.replayed.get(cause, 0.0))
    behind = ", counting what waits behind it" if most > NOTICED_RATIO * facts.spent_ms(cause) else ""
    # A kernel without a floor may go whole: what it takes is part of the most.
    blind = blind_ms(facts, cause)
    if blind > MENTION_SHARE * step_ms(facts) and not doubt:
        behind, most = f", counting {format_ms(blind)} in kernels whose floor is not known", most + blind
    return f"that saves up to {format_ms(most)}{behind}{doubt}" if most > 0 else "nothing is left to save"


def missing(facts: Facts) -> str | None:
    """What keeps floors from being known, if anything does; ends a sentence."""
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


def times_text(times: float) -> str:
    if times < RARELY:
        return "less than once"
    return "once" if times < MORE_THAN_ONCE else f"{times:,.0f} times"


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


def a_step(value_ms: float) -> str:
    """ "3.20 ms per step"; nothing measurable is "0.0 ms per step"."""
    return f"{format_ms(value_ms)} per step" if value_ms >= LEAST_SHOWN_MS else "0.0 ms per step"


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
