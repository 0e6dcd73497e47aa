"""Checks of a document's figures by themselves, and what goes where one fails."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from findwall.model.answers.memory_answer import Memory
from findwall.model.diagnosis import Diagnosis, Mfu, TimelineSummary
from findwall.units import format_ms

# Chosen by hand, not calibrated.
SUM_TOLERANCE = 1e-3  # of the step: rounding of a budget's rows
ROUNDING = 1.001  # times a figure: the same one, rounded

FigureCheck = Callable[[Diagnosis], str]  # what cannot be right; empty where all can


def budget_sums_to_the_step(document: Diagnosis) -> str:
    """Every millisecond of the step is given to one cause, and none twice."""
    step, total = document.step.ms, math.fsum(row.ms for row in document.budget)
    if not document.budget or step is None or abs(total - step) <= SUM_TOLERANCE * step:
        return ""
    return f"the budget sums to {format_ms(total)}, the step is {format_ms(step)}"


def no_cause_gives_back_more_than_it_takes(document: Diagnosis) -> str:
    """Recoverable is a part of what is spent, and both are times."""
    for row in document.budget:
        recoverable = row.recoverable_ms or 0.0
        if not 0 <= row.ms < math.inf or not 0 <= recoverable <= ROUNDING * row.ms:
            return f"{row.cause} takes {row.ms:.4g} ms and gives back {recoverable:.4g} ms"
    return ""


def no_phase_is_negative(document: Diagnosis) -> str:
    """Phases and modules are times."""
    for name, value in [(one.phase, one.ms) for one in document.phases] + [
        (one.module, one.ms) for one in document.modules
    ]:
        if not 0 <= value < math.inf:
            return f"{name} takes {value:.4g} ms"
    return ""


def shares_are_shares(document: Diagnosis) -> str:
    """A share lies between nothing and all."""
    timeline, quality = document.timeline, document.quality
    shares = {
        "the idle share": timeline.idle_share,
        "the hidden communication": timeline.comm_hidden_share,
        "the MFU": document.mfu.mfu,
        "the modelled share": quality.modelled_share,
        "the share above the spec": quality.above_spec_share,
    }
    shares |= {f"the idle share of device {one.device}": one.idle_share for one in timeline.per_device}
    return next((f"{name} is {value:.4g}" for name, value in shares.items() if not _is_share(value)), "")


_STEP_TIMES = ("ms", "low_ms", "high_ms", "median_ms", "p10_ms", "p90_ms", "profiled_ms", "busy_ms")


def step_is_a_time(document: Diagnosis) -> str:
    """A step takes time, and its bounds lie around it."""
    step = document.step
    wrong = next(
        (value for value in (getattr(step, name) for name in _STEP_TIMES) if not _is_time(value)), None
    )
    if wrong is not None or step.ms == 0:
        return f"a step of {step.ms if wrong is None else wrong:.4g} ms"
    for low, high in ((step.low_ms, step.high_ms), (step.p10_ms, step.p90_ms)):
        if low is not None and high is not None and low > ROUNDING * high:
            return f"a step between {low:.4g} and {high:.4g} ms"
    return ""


def budget_bounds_hold_their_rows(document: Diagnosis) -> str:
    """What a cause takes lies between its bounds, which are times."""
    for row in document.budget:
        low, high = row.low_ms, row.high_ms
        if not _is_time(low) or not _is_time(high):
            return f"{row.cause} between {low} and {high} ms"
        if (low or 0.0) > ROUNDING * row.ms + 1e-9 or (high is not None and row.ms > ROUNDING * high + 1e-9):
            return f"{row.cause} takes {row.ms:.4g} ms, between {low} and {high} ms"
    return ""


def phases_fit_the_step(document: Diagnosis) -> str:
    """Phases share the step among them."""
    step, total = document.step.ms, math.fsum(one.ms for one in document.phases)
    if step is None or total <= step * (1 + SUM_TOLERANCE):
        return ""
    return f"the phases sum to {format_ms(total)}, the step is {format_ms(step)}"


def kinds_share_the_steps(document: Diagnosis) -> str:
    """Every step is of one kind."""
    for one in document.kinds:
        if not _is_share(one.share_of_steps) or not _is_time(one.ms) or (one.every or 1) < 1:
            return f"{one.kind}: {one.share_of_steps:.4g} of the steps"
    total = math.fsum(one.share_of_steps for one in document.kinds)
    return "" if total <= 1 + 1e-6 else f"the kinds of steps make up {total:.4g} of them"


def elapsed_is_shared(document: Diagnosis) -> str:
    """The job's time goes to one thing at a time."""
    shares = document.elapsed or {}
    wrong = next((f"{name} {value:.4g}" for name, value in shares.items() if not _is_share(value)), "")
    total = math.fsum(shares.values())
    return wrong or ("" if total <= 1 + 1e-6 else f"the parts of the job's time sum to {total:.4g} of it")


def devices_times_are_times(document: Diagnosis) -> str:
    """A device is busy for no longer than was looked at."""
    timeline, quality = document.timeline, document.quality
    times = [timeline.span_ms, timeline.busy_ms, timeline.comm_ms, quality.start_up_ms, quality.cut_away_ms]
    times += [one.busy_ms for one in timeline.per_device]
    times += [
        value for row in document.kernels for value in (row.ms, row.floor_ms, row.flops, row.bytes, row.calls)
    ]
    wrong = next((value for value in times if not _is_time(value)), None)
    if wrong is not None:
        return f"a time of {wrong:.4g} ms"
    if timeline.span_ms is not None and (timeline.busy_ms or 0.0) > ROUNDING * timeline.span_ms:
        return f"the device is busy {timeline.busy_ms:.4g} of {timeline.span_ms:.4g} ms"
    return ""


def job_figures_can_be(document: Diagnosis) -> str:
    """Memory and throughput are amounts."""
    figures = [
        document.memory.peak_gib,
        document.memory.total_gib,
        document.mfu.hfu,
        document.mfu.flops_per_step,
    ]
    figures += [document.throughput.value] if document.throughput is not None else []
    wrong = next((value for value in figures if not _is_time(value)), None)
    return "" if wrong is None else f"a figure of {wrong:.4g}"


def _is_share(value: float | None) -> bool:
    return value is None or 0 <= value <= 1 + 1e-9


def _is_time(value: float | None) -> bool:
    return value is None or 0 <= value < math.inf


def _without_shares(document: Diagnosis) -> Diagnosis:
    def kept(value: float | None) -> float | None:
        return value if _is_share(value) else None

    change = msgspec.structs.replace
    timeline, quality, mfu = document.timeline, document.quality, document.mfu
    return change(
        document,
        timeline=change(
            timeline,
            idle_share=kept(timeline.idle_share),
            comm_hidden_share=kept(timeline.comm_hidden_share),
            per_device=[change(one, idle_share=kept(one.idle_share)) for one in timeline.per_device],
        ),
        quality=change(
            quality,
            modelled_share=kept(quality.modelled_share),
            above_spec_share=kept(quality.above_spec_share),
        ),
        mfu=change(mfu, mfu=kept(mfu.mfu)),
    )


FIGURES: dict[FigureCheck, Callable[[Diagnosis], Diagnosis]] = {
    budget_sums_to_the_step: lambda one: msgspec.structs.replace(one, budget=[]),
    no_cause_gives_back_more_than_it_takes: lambda one: msgspec.structs.replace(one, budget=[]),
    no_phase_is_negative: lambda one: msgspec.structs.replace(one, phases=[], modules=[]),
    shares_are_shares: _without_shares,
    step_is_a_time: lambda one: msgspec.structs.replace(
        one, step=msgspec.structs.replace(one.step, **dict.fromkeys(_STEP_TIMES)), budget=[], phases=[]
    ),
    budget_bounds_hold_their_rows: lambda one: msgspec.structs.replace(
        one,
        budget=[msgspec.structs.replace(row, low_ms=None, high_ms=None) for row in one.budget],
    ),
}
# Figures beside the verdict: it does not rest on them, and stays without them.
BESIDE: dict[FigureCheck, Callable[[Diagnosis], Diagnosis]] = {
    phases_fit_the_step: lambda one: msgspec.structs.replace(one, phases=[]),
    kinds_share_the_steps: lambda one: msgspec.structs.replace(one, kinds=[]),
    elapsed_is_shared: lambda one: msgspec.structs.replace(one, elapsed=None),
    devices_times_are_times: lambda one: msgspec.structs.replace(
        one, timeline=TimelineSummary(None, None, None, None, None, []), kernels=[]
    ),
    job_figures_can_be: lambda one: msgspec.structs.replace(
        one,
        memory=Memory(None, None),
        throughput=None,
        ranks=msgspec.structs.replace(one.ranks, throughput=None) if one.ranks is not None else None,
        mfu=Mfu(None, None, None, None, one.mfu.source),
    ),
}
