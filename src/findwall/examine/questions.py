"""The four questions, always asked and answered in this order, each with its number."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.step_traits import on_cores
from findwall.attribute.timed_steps import FEWEST_STEPS
from findwall.examine.kinds import about_kinds
from findwall.model.catalogue import (
    FAIR_PART,
    KERNEL_CLASSES,
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    NEAR,
    NEARLY_ALL,
)
from findwall.model.claims import Claim, Figure
from findwall.model.diagnosis import Question
from findwall.units import ms

NO_CLASS = "other"  # of kernels: neither name nor op says what they do


def answer_questions(facts: Facts) -> list[Question]:
    return [_stable(facts), _busy(facts), _matmul(facts), _peak(facts)]


def _yes(condition: bool) -> str:
    return "yes" if condition else "no"


def is_steady(seconds: np.ndarray) -> bool | None:
    """Whether steps take about as long as each other; None: too few alike ones were seen to say so."""
    value = spread(seconds)
    if value is None or (value <= FAIR_PART and len(seconds) < FEWEST_STEPS):
        return None
    return value <= FAIR_PART


def spread(seconds: np.ndarray) -> float | None:
    """(p90 - p10) / median; None from fewer than two steps."""
    if len(seconds) < 2:
        return None
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    return float((high - low) / middle) if middle > 0 else None


def _stable(facts: Facts) -> Question:
    timed = facts.rank.step_times
    measured = timed is not None and len(timed.seconds) > 1
    seconds = np.array(timed.seconds) if measured and timed is not None else facts.whole.steps.lengths / 1e9
    told = about_kinds(facts.rank, facts)
    if told and len(seconds) > 1:
        kinds = Claim("stable/kinds", {"kinds": len(told) + 1}, parts=told[:1])
        return Question("stable", "no", spread(seconds), claim=kinds)
    return steadiness(seconds, profiled=not measured)


def steadiness(seconds: np.ndarray, profiled: bool = False) -> Question:
    """The first of the questions, of steps that are all of one kind."""
    value, steady = spread(seconds), is_steady(seconds)
    if value is None:
        return Question(
            "stable", "unknown", None, claim=Claim("stable/one-step" if len(seconds) else "stable/none")
        )
    figures = {"spread_share": value, "steps": len(seconds), "profiled": profiled, "few": steady is None}
    answer = "unknown" if steady is None else _yes(steady)
    return Question("stable", answer, value, claim=Claim("stable/spread", {**figures}))  # type: ignore[arg-type]


def _busy(facts: Facts) -> Question:
    shares = [
        scenario.busy / scenario.step if scenario.step > 0 else 0.0 for scenario in facts.reading.scenarios
    ]
    likely, low, high = shares[1], min(shares), max(shares)
    figures: dict[str, Figure] = {"on_cores": on_cores(facts), "low_share": low, "high_share": high}
    if _yes(low >= NEARLY_ALL) != _yes(high >= NEARLY_ALL):
        return Question("busy", "unknown", likely, claim=Claim("busy/hidden", figures))
    figures |= {"busy_share": likely, "idle_ms": ms(facts.step - facts.reading.likely.busy)}
    return Question("busy", _yes(likely >= NEARLY_ALL), likely, claim=Claim("busy/works", figures))  # type: ignore[arg-type]


def counted_busy(busy: float | None, nothing: Claim) -> Question:
    """The second of them, by counters alone."""
    if busy is None:
        return Question("busy", "unknown", None, claim=nothing)
    return Question("busy", _yes(busy >= NEARLY_ALL), busy, claim=Claim("busy/counted", {"busy_share": busy}))  # type: ignore[arg-type]


def _matrix(facts: Facts) -> np.ndarray:
    return _is_class(facts, *MATRIX_CLASSES)


def _is_class(facts: Facts, *names: str) -> np.ndarray:
    wanted = [KERNEL_CLASSES.index(name) for name in names]
    mask: np.ndarray = np.isin(facts.kernels.class_index[facts.atoms.index], wanted)
    return mask


def _matmul(facts: Facts) -> Question:
    busy = float(facts.own.sum())
    if busy <= 0:
        return Question("matmul", "unknown", None, claim=Claim("matmul/no-work"))
    value = float(facts.own[_matrix(facts)].sum()) / busy
    most = value + float(facts.own[_is_class(facts, NO_CLASS)].sum()) / busy
    if value < MAJORITY_SHARE <= most:
        nameless = Claim("matmul/unknown", {"unknown_share": most - value})
        return Question("matmul", "unknown", None, claim=nameless)
    part = Claim("matmul/share", {"matmul_share": value})
    return Question("matmul", _yes(value >= MAJORITY_SHARE), value, claim=part)  # type: ignore[arg-type]


def _peak(facts: Facts) -> Question:
    matrix = _matrix(facts)
    index = facts.atoms.index
    floor = np.fmin(facts.kernels.floor[index], facts.kernels.better_floor[index])
    known = matrix & ~np.isnan(floor)
    time = float(facts.kernels.duration[index][known].sum())
    if not float(facts.kernels.duration[index][matrix].sum()):
        return Question("peak", "unknown", None, claim=Claim("peak/no-matmuls"))
    if time < MAJORITY_SHARE * float(facts.kernels.duration[index][matrix].sum()):
        blind = Claim("peak/unknown", {"ceilings_known": facts.ceilings.known})
        return Question("peak", "unknown", None, claim=blind)
    value = float(floor[known].sum()) / time
    figures: dict[str, Figure] = {
        "reached_share": value,
        "on_cores": on_cores(facts),
        "source": "doubtful" if facts.ceilings.doubt else facts.ceilings.source,
    }
    return Question("peak", _yes(value >= NEAR), value, claim=Claim("peak/reached", figures))  # type: ignore[arg-type]
