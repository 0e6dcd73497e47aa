"""Two sides, each of one run or several: what of the step changed, by how much, and whether it is real."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from math import fsum, inf
from statistics import median

import msgspec

from findwall.examine.document_rows import KERNELS_LISTED
from findwall.model.catalogue import WAITED_FOR_SHARE, WORTH_IT
from findwall.model.comparison import (
    COMPARE_SCHEMA,
    CauseChange,
    Compared,
    Differs,
    KernelChange,
    Side,
    StepChange,
)
from findwall.model.diagnosis import Diagnosis, KernelRow
from findwall.model.machine import CONTENDED
from findwall.report.printable_names import clean
from findwall.trial.statistics import LEAST_DIFFERENCE, LEAST_SAMPLES, prove_alike, verdict
from findwall.units import format_ms

TIMED = ("measured", "given")  # sources of a step that no profiler stretched
# Of the step; chosen by hand. Twice what a trial asks for: there arms take turns, here one side was measured
# after the other, and a machine drifts. Where processes vary by 1 %, sides that are alike are told apart in
# 0.2 % of comparisons of four runs each, and 5 % are found in 98 % (`tests/examine/test_compared.py`).
LEAST_CHANGE = 2 * LEAST_DIFFERENCE
# With one run a side nobody knows how far two processes of the same job lie apart. Chosen by hand: three
# times the 1 % by which processes usually vary. What the steps of a run vary by comes on top.
ONE_RUN_BAR = 0.03
LEAST_REST_MS = 1e-6  # of the budget: less is the rounding of sums
REST = "rest"  # the part of a step that its budget does not hold

_FIGURES = re.compile(r"[0-9][0-9.,]*")

RowKey = tuple[str | None, str]
KernelKey = tuple[str, str]


class Taken(msgspec.Struct, frozen=True):
    """One run as it was read."""

    diagnosis: Diagnosis
    versions: dict[str, str] = {}  # by package; empty: the input does not tell
    findings: dict[str, str] = {}  # about its environment: what each is called, and its sentence


def compare_sides(before: Sequence[Taken], after: Sequence[Taken]) -> Compared:
    """All that is told of two sides. Each holds at least one run."""
    quiet = [run for run in before if not _disturbed(run)], [run for run in after if not _disturbed(run)]
    lost = len(before) - len(quiet[0]), len(after) - len(quiet[1])
    # Of one side alone they would only be missed: the other's would still be slow.
    leave_out = any(lost) and min(map(len, quiet)) >= LEAST_SAMPLES
    told_of_others = _about_others(lost, (len(before), len(after)), leave_out)
    if leave_out:
        before, after = quiet
    sides = _side(before), _side(after)
    told = before[sides[0].told[0]], after[sides[1].told[0]]
    return Compared(
        schema=COMPARE_SCHEMA,
        before=sides[0],
        after=sides[1],
        step=_step_change(before, after, sides),
        budget=_budget(before, after, sides),
        kernels=_kernels(told[0].diagnosis, told[1].diagnosis, sides),
        environment=_environment(*told),
        notes=[*told_of_others, *_notes(told, sides)],
    )


def _disturbed(run: Taken) -> bool:
    """Whether others had most of the cores while its steps were timed: what those cost it nobody knows."""
    return CONTENDED in run.findings


def _about_others(lost: tuple[int, int], runs: tuple[int, int], left_out: bool) -> list[str]:
    many = [f"{lost[at]} of {runs[at]} of {'AB'[at]}" for at in (0, 1) if lost[at]]
    if not many:
        return []
    during = "while other processes kept most of the cores busy"
    if left_out:
        return [f"Runs that were timed {during} are left out: {' and '.join(many)}."]
    return [f"Runs were timed {during}: {' and '.join(many)}. Repeat them on a quiet machine."]


def _side(runs: Sequence[Taken]) -> Side:
    documents = [run.diagnosis for run in runs]
    steps = [one.step.ms for one in documents]
    known = [step for step in steps if step is not None]
    middle = median(known) if known else None
    told = _middle(documents, middle)
    sources = {one.step.source for one in documents}
    return Side(
        paths=list(chain.from_iterable(one.source.paths for one in documents)),
        steps_ms=steps,
        step_ms=middle,
        source=sources.pop() if len(sources) == 1 else "mixed",
        told=told,
        wall=documents[told[0]].wall.wall,
        cause=documents[told[0]].wall.cause,
        device=documents[told[0]].machine.device,
    )


def _middle(documents: Sequence[Diagnosis], middle: float | None) -> list[int]:
    """The runs that speak for their side: the one or two that its step is taken from; where those have no
    budget, the nearest that has one."""

    def far(at: int) -> tuple[bool, float]:
        step = documents[at].step.ms
        return not documents[at].budget, abs(
            step - middle
        ) if step is not None and middle is not None else inf

    order = sorted(range(len(documents)), key=far)
    timed = [at for at in range(len(documents)) if documents[at].step.ms is not None]
    timed.sort(key=lambda at: documents[at].step.ms or 0.0)
    half = len(timed) // 2
    decide = timed[half - 1 : half + 1] if timed and len(timed) % 2 == 0 else timed[half : half + 1]
    return decide if decide and all(documents[at].budget for at in decide) else order[:1]


def _step_change(before: Sequence[Taken], after: Sequence[Taken], sides: tuple[Side, Side]) -> StepChange:
    one, two = sides[0].step_ms, sides[1].step_ms
    if one is None or two is None or one <= 0:
        which = "first" if one is None or one <= 0 else "second"
        why = f"the {which} side has no step time; measure the job with `findwall run`"
        return StepChange("unknown", "nothing", None, None, None, None, None, why)
    ms, share = two - one, two / one - 1
    if not all(run.diagnosis.step.source in TIMED for run in chain(before, after)):
        why = (
            "the steps were not timed without the profiler, so nobody knows how far they vary; "
            "measure both sides with `findwall run`"
        )
        return StepChange("unknown", "nothing", ms, share, None, None, None, why)
    samples = [[step for step in side.steps_ms if step is not None] for side in sides]
    if min(map(len, samples)) >= LEAST_SAMPLES:
        return _proven(samples, ms, share)
    return _from_steps(before, after, sides, ms, share)


def _proven(samples: list[list[float]], ms: float, share: float) -> StepChange:
    """Every run is one sample: processes differ by more than their steps show."""
    found = prove_alike(samples[0], samples[1])
    assert found is not None
    low, high = 1 / found.high - 1, 1 / found.low - 1  # a speed-up's interval as one of the step's change
    return StepChange(verdict(found, LEAST_CHANGE), "runs", ms, share, low, high, LEAST_CHANGE)


def _from_steps(
    before: Sequence[Taken], after: Sequence[Taken], sides: tuple[Side, Side], ms: float, share: float
) -> StepChange:
    """One process on a side. Its steps are not independent: they tell how far it varies, not how far the next
    process would. So a change must exceed what steps and processes vary by together."""
    spreads = [_spread(run.diagnosis, sides[at]) for at, runs in enumerate((before, after)) for run in runs]
    among = [_among(side) for side in sides]
    known = [one for one in spreads if one is not None]
    if len(known) < len(spreads):
        why = "a step that is only given has no spread; measure both sides with `findwall run`"
        return StepChange("unknown", "nothing", ms, share, None, None, None, why)
    bar = ONE_RUN_BAR + max(*known, *among)
    if share < 0:  # half as long is as much as twice as long
        bar = bar / (1 + bar)
    outcome = "no-difference" if abs(share) <= bar else "slower" if share > 0 else "faster"
    low, high = _ends(before[sides[0].told[0]].diagnosis, after[sides[1].told[0]].diagnosis)
    return StepChange(outcome, "steps", ms, share, low, high, bar)  # type: ignore[arg-type]


def _spread(one: Diagnosis, side: Side) -> float | None:
    """What the steps of one run vary by, as a share of the step."""
    low, high = one.step.p10_ms, one.step.p90_ms
    return None if low is None or high is None or not side.step_ms else (high - low) / side.step_ms


def _among(side: Side) -> float:
    """What the runs of one side vary by, likewise."""
    known = [step for step in side.steps_ms if step is not None]
    return (max(known) - min(known)) / side.step_ms if known and side.step_ms else 0.0


def _ends(one: Diagnosis, two: Diagnosis) -> tuple[float | None, float | None]:
    """The change's interval, as far as the means of the two runs' steps are known."""
    ends = one.step.low_ms, one.step.high_ms, two.step.low_ms, two.step.high_ms
    if any(end is None or end <= 0 for end in ends):
        return None, None
    low_one, high_one, low_two, high_two = (end or 0.0 for end in ends)
    return low_two / high_one - 1, high_two / low_one - 1


def _budget(before: Sequence[Taken], after: Sequence[Taken], sides: tuple[Side, Side]) -> list[CauseChange]:
    """What each cause takes on either side, the largest change first; all changes sum to the step's."""
    one, two = _parts(before, sides[0]), _parts(after, sides[1])
    if not (one and two):
        return []
    rows = []
    for wall, cause in dict.fromkeys(chain(one, two)):
        was, now = one.get((wall, cause), 0.0), two.get((wall, cause), 0.0)
        rows.append(CauseChange(wall, cause, was, now, now - was))
    return sorted(rows, key=lambda row: -abs(row.ms))


def _parts(runs: Sequence[Taken], side: Side) -> dict[RowKey, float]:
    """The mean budget of the runs that are told of. What it leaves of the side's step is a part, too."""
    budgets = [runs[at].diagnosis.budget for at in side.told]
    if side.step_ms is None or not all(budgets):
        return {}
    parts: dict[RowKey, float] = {}
    for row in chain.from_iterable(budgets):
        parts[row.wall, row.cause] = parts.get((row.wall, row.cause), 0.0) + row.ms / len(budgets)
    rest = side.step_ms - fsum(parts.values())
    if abs(rest) > LEAST_REST_MS:
        parts[None, REST] = rest
    return parts


def _kernels(one: Diagnosis, two: Diagnosis, sides: tuple[Side, Side]) -> list[KernelChange]:
    """Kernels that appeared, vanished or changed, by name and class, the largest change first."""
    if not (one.kernels and two.kernels):
        return []
    least = WAITED_FOR_SHARE * max(sides[0].step_ms or 0.0, sides[1].step_ms or 0.0)
    found = _by_name(one.kernels), _by_name(two.kernels)
    cuts = _cut(one.kernels), _cut(two.kernels)
    rows = []
    for name, class_ in dict.fromkeys(chain(*found)):
        taken = [side.get((name, class_), (0.0, 0.0)) for side in found]
        change = taken[1][0] - taken[0][0]
        absent = [(name, class_) not in side for side in found]
        # A full list leaves the shortest out: what is absent there may have run all the same.
        unsure = max((cut for cut, is_absent in zip(cuts, absent, strict=True) if is_absent), default=0.0)
        if abs(change) < max(least, WORTH_IT * max(taken[0][0], taken[1][0]), unsure):
            continue
        rows.append(
            KernelChange(
                name=name,
                class_=class_,
                what="appeared" if absent[0] else "vanished" if absent[1] else "changed",
                before_ms=taken[0][0],
                after_ms=taken[1][0],
                ms=change,
                before_calls=taken[0][1],
                after_calls=taken[1][1],
            )
        )
    return sorted(rows, key=lambda row: -abs(row.ms))


def _by_name(kernels: Sequence[KernelRow]) -> dict[KernelKey, tuple[float, float]]:
    """Milliseconds and calls a step of each kernel, whichever op launched it."""
    found: dict[KernelKey, tuple[float, float]] = {}
    for row in kernels:
        ms, calls = found.get((row.name, row.class_), (0.0, 0.0))
        found[row.name, row.class_] = ms + row.ms, calls + row.calls
    return found


def _cut(kernels: Sequence[KernelRow]) -> float:
    """The time below which kernels may have been left out of a list."""
    return min(row.ms for row in kernels) if len(kernels) >= KERNELS_LISTED else 0.0


def _environment(one: Taken, two: Taken) -> list[Differs]:
    """The GPU, the ranks, versions where both sides tell them, and what an audit found on one side only."""
    rows = [
        Differs("GPU", one.diagnosis.machine.device, two.diagnosis.machine.device),
        Differs("ranks", str(one.diagnosis.source.ranks), str(two.diagnosis.source.ranks)),
    ]
    if one.versions and two.versions:
        names = sorted({*one.versions, *two.versions})
        rows += [Differs(name, one.versions.get(name), two.versions.get(name)) for name in names]
    found = _findings(one, two)
    for name in dict.fromkeys(chain(*found)):
        if (name in found[0]) != (name in found[1]):
            rows.append(Differs("finding", found[0].get(name), found[1].get(name)))
    return [row for row in rows if row.before != row.after]


def _findings(one: Taken, two: Taken) -> tuple[dict[str, str], dict[str, str]]:
    """By what they are called where both sides tell it; a document has only the sentences of warnings, which
    are told apart without their figures."""
    if one.versions and two.versions:
        return one.findings, two.findings
    first, second = (
        {_FIGURES.sub("", text): text for text in run.diagnosis.environment} for run in (one, two)
    )
    return first, second


def _notes(told: tuple[Taken, Taken], sides: tuple[Side, Side]) -> list[str]:
    notes = _about_device(told, sides)
    if sides[0].source != sides[1].source:
        notes.append(
            f"The steps are not alike: {_SOURCES[sides[0].source]} before, {_SOURCES[sides[1].source]} after."
        )
    for run, label in zip(told, ("A", "B"), strict=True):
        step = run.diagnosis.step
        if step.ms is not None and step.median_ms is not None and step.median_ms < (1 - WORTH_IT) * step.ms:
            notes.append(
                f"{format_ms(step.ms)} is the mean of {label}'s {step.count} steps; half of them take at "
                f"most {format_ms(step.median_ms)}: a few long ones make the difference."
            )
        if run.diagnosis.source.crash:
            notes.append(f"The job of {label} failed: {clean(run.diagnosis.source.crash)[:120]}.")
        if not run.diagnosis.budget:
            notes.append(f"{label} has no budget: trace it to see which cause changed.")
    return notes


def _about_device(told: tuple[Taken, Taken], sides: tuple[Side, Side]) -> list[str]:
    """Where no step was timed: the device's own time is true under a profiler too."""
    if all(side.source in TIMED for side in sides):
        return []
    busy = [run.diagnosis.step.busy_ms or run.diagnosis.timeline.busy_ms for run in told]
    if not (busy[0] and busy[1]):
        return []
    change = f"{100 * (busy[1] / busy[0] - 1):+.0f} %".replace("-", "−")
    what = "step" if all(run.diagnosis.step.found_by != "span" for run in told) else "trace"
    return [
        f"The device works {format_ms(busy[0])} per {what} before and {format_ms(busy[1])} after ({change})."
    ]


_SOURCES = {
    "measured": "measured",
    "given": "as given",
    "trace": "under the profiler",
    "estimated": "estimated from a trace",
    "mixed": "of several kinds",
}
