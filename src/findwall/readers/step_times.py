"""Step times as a measurement holds them: by one clock, of plain steps, told apart by kind."""

from __future__ import annotations

from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.model.kinds import SELDOM, USUAL, StepKind, belongs_to_step, even_distance
from findwall.model.measured_run import Elapsed, StepTimes
from findwall.model.measurement import Later, Measurement, StepColumns

# Chosen by hand, not calibrated.
LONGER_RATIO = 1.6  # times the longest kind that was timed: a later step this long is of another kind


def step_times(rank: Measurement, notes: list[str]) -> StepTimes | None:
    steps = rank.steps
    kept = _plain_steps(steps, notes)
    if not kept:
        notes.append("no step was timed")
        return None
    times = steps.times(kept)
    if sum(times) <= 0:
        notes.append("no step was timed: all of them took no time at all")
        return None
    if rank.device_kind == "gpu" and len(times) == len(kept) and steps.device_ns[kept[0]] is None:
        notes.append("step times come from the host's clock alone, which may run ahead of the device")
    seconds = tuple(value / 1e9 for value in times)
    timed = steps.timed(kept)
    told_apart = len(steps.kind) == len(steps)
    return StepTimes(
        seconds=seconds,
        source="measured",
        discarded=rank.warmup.steps,
        loader_s=_mean_s(steps.loader_ns, kept) if rank.loader_seen else None,
        gc_s=_mean_s(steps.gc_ns, kept),
        saving_s=_saving_s(rank, kept),
        kind=tuple(steps.kind[row] for row in timed) if told_apart else (),
        doing=_doing(rank, timed) if told_apart else (),
        seldom=None if rank.later is None else _seldom(rank, rank.later),
        later_s=rank.later.ns / rank.later.steps / 1e9 if rank.later and rank.later.steps > 0 else None,
    )


def elapsed(rank: Measurement) -> Elapsed | None:
    """The shares of the job's time; what an evaluation's own loader starts is the evaluation's, and what is
    part of the step is not beside it."""
    found = rank.elapsed
    if found is None or found.total <= 0:
        return None
    parts = {name: value / 1e9 for name, value in found.beside.items()}
    return Elapsed(
        total=found.total / 1e9,
        start_up=found.start_up / 1e9,
        evaluation=0.0 if _part_of_step(rank.steps) else parts.get("evaluation", 0.0),
        saving=parts.get("saving", 0.0),
        loader_start=parts.get("loader-start", 0.0),
        other=(found.after_steps + found.held_up) / 1e9,
    )


def evaluated_apart(rank: Measurement) -> frozenset[int]:
    """The numbers of all steps that held an evaluation, traced ones too, where it is no part of the step."""
    if _part_of_step(rank.steps):
        return frozenset()
    return frozenset(one.step for one in rank.beside if one.what == "evaluation")


def evaluates_always(rank: Measurement) -> bool:
    """Whether what is trained was in evaluation mode for a while in most steps."""
    return sum(rank.steps.evaluated) > MAJORITY_SHARE * len(rank.steps)


def _part_of_step(steps: StepColumns) -> bool:
    return belongs_to_step([row for row, other in enumerate(steps.evaluated) if other], len(steps))


def _plain_steps(steps: StepColumns, notes: list[str]) -> list[int]:
    """Steps without an evaluation inside, but where it belongs to the step."""
    every = list(range(len(steps)))
    plain = [index for index in every if not steps.evaluated[index]]
    left_out = len(every) - len(plain)
    if not left_out or _part_of_step(steps):
        return every
    notes.append(f"{left_out} of {len(every)} timed steps held an evaluation and are left out")
    return plain


def _mean_s(column: list[int], kept: list[int]) -> float:
    return sum(column[index] for index in kept) / len(kept) / 1e9


def _saving_s(rank: Measurement, kept: list[int]) -> float:
    """Writing checkpoints in these steps, a step."""
    mine = {rank.first_timed + row for row in kept}
    return sum(one.ns for one in rank.beside if one.what == "saving" and one.step in mine) / len(kept) / 1e9


def _doing(rank: Measurement, rows: list[int]) -> tuple[tuple[str, str], ...]:
    """What the steps of each kind do that usual ones do not, where a hook saw it."""
    steps = rank.steps
    usual = [steps.host_ns[row] for row in rows if steps.kind[row] == USUAL]
    found = []
    for name in sorted({steps.kind[row] for row in rows} - {USUAL}):
        mine = {row for row in rows if steps.kind[row] == name}
        beyond = sum(steps.host_ns[row] for row in mine) - len(mine) * sum(usual) / max(len(usual), 1)
        what = _what(rank, {rank.first_timed + row for row in mine}, beyond)
        if what:
            found.append((name, what))
    return tuple(found)


def _what(rank: Measurement, steps: set[int], beyond: float) -> str:
    spent: dict[str, int] = {}
    for one in rank.beside:
        if one.step in steps:
            spent[one.what] = spent.get(one.what, 0) + one.ns
    most = max(spent, key=lambda what: spent[what], default="")
    return most if most and spent[most] >= MAJORITY_SHARE * beyond else ""


def _seldom(rank: Measurement, later: Later) -> StepKind | None:
    """Steps of a kind that did not come while steps were timed, and take a fair share of the job's time.

    Evaluations are no steps, and counted beside them.
    """
    steps = rank.steps
    usual = sorted(steps.host_ns)[len(steps) // 2]
    longest = max((steps.host_ns[row] for row in range(len(steps)) if _stands_out(steps, row)), default=usual)
    evaluated = {one.step for one in rank.beside if one.what == "evaluation"}
    rows = [
        at
        for at, ns in enumerate(later.slow_ns)
        if ns > LONGER_RATIO * longest and later.first_step + later.slow_step[at] not in evaluated
    ]
    spent = sum(later.slow_ns[at] for at in rows)
    if not rows or spent - len(rows) * usual < WORTH_IT * later.ns:
        return None
    own = {later.first_step + later.slow_step[at] for at in rows}
    return StepKind(
        SELDOM,
        len(rows) / (later.steps + len(steps)),
        spent / len(rows) / 1e9,
        even_distance([later.slow_step[at] for at in rows]),
        _what(rank, own, spent - len(rows) * usual),
    )


def _stands_out(steps: StepColumns, row: int) -> bool:
    return len(steps.kind) == len(steps) and steps.kind[row] != USUAL
