"""The four questions, always asked and answered in this order, each with its number."""

from __future__ import annotations

import numpy as np

from findwall.attribute.conditions import FEWEST_STEPS
from findwall.attribute.facts import Facts
from findwall.examine.kinds import about_kinds
from findwall.model.catalogue import (
    FAIR_PART,
    KERNEL_CLASSES,
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    NEAR,
    NEARLY_ALL,
)
from findwall.model.diagnosis import Question
from findwall.units import format_ms, format_share, ms

DOUBTFUL = "measured on a busy machine"
SOURCES = {"measured": "measured", "table": "from the table"}
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
        return Question("stable", "no", spread(seconds), f"Steps come in {len(told) + 1} kinds: {told[0]}")
    return steadiness(seconds, "steps" if measured else "profiled steps")


def steadiness(seconds: np.ndarray, what: str = "steps") -> Question:
    """The first of the questions, of steps that are all of one kind."""
    value, steady = spread(seconds), is_steady(seconds)
    if value is None:
        few = "Only one step was seen, so it is unknown whether steps vary."
        return Question("stable", "unknown", None, few if len(seconds) else "No steps were timed.")
    few = ", too few to call them steady" if steady is None else ""
    text = f"Step times vary by {format_share(value)} over {len(seconds)} {what}{few}."
    return Question("stable", "unknown" if steady is None else _yes(steady), value, text)  # type: ignore[arg-type]


def _device(facts: Facts) -> str:
    return "CPU" if facts.rank.device_kind == "cpu" else "GPU"


def _busy(facts: Facts) -> Question:
    shares = [
        scenario.busy / scenario.step if scenario.step > 0 else 0.0 for scenario in facts.reading.scenarios
    ]
    likely, low, high = shares[1], min(shares), max(shares)
    idle = format_ms(ms(facts.step - facts.reading.likely.busy))
    if _yes(low >= NEARLY_ALL) != _yes(high >= NEARLY_ALL):
        share = f"{format_share(low)} to {format_share(high)}"
        text = f"The {_device(facts)} works {share} of the step; the profiler hides how much."
        return Question("busy", "unknown", likely, text)
    text = f"The {_device(facts)} works {format_share(likely)} of the step and idles {idle}."
    return Question("busy", _yes(likely >= NEARLY_ALL), likely, text)  # type: ignore[arg-type]


def _matrix(facts: Facts) -> np.ndarray:
    return _is_class(facts, *MATRIX_CLASSES)


def _is_class(facts: Facts, *names: str) -> np.ndarray:
    wanted = [KERNEL_CLASSES.index(name) for name in names]
    mask: np.ndarray = np.isin(facts.kernels.class_index[facts.atoms.index], wanted)
    return mask


def _matmul(facts: Facts) -> Question:
    busy = float(facts.own.sum())
    if busy <= 0:
        return Question("matmul", "unknown", None, "No device time was seen.")
    value = float(facts.own[_matrix(facts)].sum()) / busy
    most = value + float(facts.own[_is_class(facts, NO_CLASS)].sum()) / busy
    if value < MAJORITY_SHARE <= most:
        unknown = format_share(most - value)
        text = f"It is unknown how much is matmul: nothing tells what {unknown} of the busy time computes."
        return Question("matmul", "unknown", None, text)
    text = f"{format_share(value)} of the busy time is matmul, convolution or attention."
    return Question("matmul", _yes(value >= MAJORITY_SHARE), value, text)  # type: ignore[arg-type]


def _peak(facts: Facts) -> Question:
    matrix = _matrix(facts)
    index = facts.atoms.index
    floor = np.fmin(facts.kernels.floor[index], facts.kernels.better_floor[index])
    known = matrix & ~np.isnan(floor)
    time = float(facts.kernels.duration[index][known].sum())
    if not float(facts.kernels.duration[index][matrix].sum()):
        return Question("peak", "unknown", None, "There are no matmuls to compare with the ceiling.")
    if time < MAJORITY_SHARE * float(facts.kernels.duration[index][matrix].sum()):
        why = "no ceilings are known" if not facts.ceilings.known else "most of them have no shapes"
        return Question(
            "peak", "unknown", None, f"It is unknown how near the ceiling the matmuls run: {why}."
        )
    value = float(floor[known].sum()) / time
    source = DOUBTFUL if facts.ceilings.doubt else SOURCES.get(facts.ceilings.source, "known")
    reach = f"what this {_device(facts)} can reach on such work (ceilings {source})"
    text = f"The matmuls run at {format_share(value)} of {reach}."
    return Question("peak", _yes(value >= NEAR), value, text)  # type: ignore[arg-type]
