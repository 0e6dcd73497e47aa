"""What causes could give back, in milliseconds, and what keeps that from being known."""

from __future__ import annotations

import numpy as np

from findwall.facts.facts import Facts
from findwall.facts.step_traits import device_word, on_cores
from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Claim, known
from findwall.replay.graph import CHECKPOINTING, LAUNCHING
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

NO_MODEL = "these kernels have no model"


def lacking(facts: WorkFacts) -> Claim | None:
    """What keeps floors from being known, if anything does."""
    if not facts.ceilings.known:
        return Claim("lacking/ceilings", {"on_cores": on_cores(facts)}, known(device=facts.ceilings.device))
    header = facts.timeline.header
    if not header.shapes and not facts.timeline.details.inputs:
        return Claim("lacking/shapes", {"recorder": header.recorder})
    return None


def missing(facts: WorkFacts) -> str | None:
    """The same as the end of a sentence."""
    if not facts.ceilings.known:
        name = facts.ceilings.device or "the trace does not name it"
        return f"this {device_word(facts)}'s ceilings are unknown: {name}"
    if not facts.timeline.header.shapes and not facts.timeline.details.inputs:
        return f"the trace has no shapes: {facts.timeline.header.shapes_option}"
    return None


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


def launch_idle(facts: Facts) -> float:
    """Idle time that waits for launches, in ms a step, whatever they are for; without turn-around."""
    scenario = facts.reading.likely
    return ms(max(scenario.idle[LAUNCHING] - scenario.turnaround, 0.0) + scenario.idle[CHECKPOINTING])
