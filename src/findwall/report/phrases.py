"""The document in short phrases: what the terminal and the Markdown view both say."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import msgspec

from findwall.model.claims import Evidence
from findwall.model.diagnosis import KERNELS_ALONE, BudgetRow, Diagnosis, KernelRow, Machine, Step
from findwall.report.fix_phrases import NOTED_DIFFERENCE, is_wide
from findwall.report.printable_names import clean, fit, kernel_name
from findwall.report.texts import memory_text, watched_text
from findwall.units import format_interval, format_ms, format_share

# What is shown is chosen by hand: one screen, and nothing that changes no decision.
BARS_SHOWN = 9
FOLDED_SHARE = 0.015  # of the step: smaller causes are folded into one row
FEWEST_STEPS_FOR_SPREAD = 3  # percentiles of fewer are the steps themselves
WHOLE_FROM = 100.0  # units a second: from here on decimals say nothing
PHASE_SHOWN_SHARE = 0.005  # of the step: shorter phases are left out
BAD_EVENTS_SHARE = 0.01  # of the events: fewer mended or unlinked ones do not change the answer
MODELLED_SHARE = 0.9  # of the kernel time: less with known work is said
COST_SHARE = 0.01  # of a step: what findwall itself costs is said from here on
MEASURED = "measured"  # how the origin of ceilings begins that findwall measured
KNOWN_ROWS = 3  # of the budget, where there is no verdict
ABOVE_SPEC_SHARE = 0.01  # of the kernel time: more that beats the ceiling is said
MFU_USUAL = "large transformers usually reach 35–50 %"


class Bar(msgspec.Struct, frozen=True):
    """One row of the budget, and its figures as every view writes them."""

    wall: str
    cause: str
    ms: float
    recoverable_ms: float | None
    time: str  # in milliseconds, as many decimals as all rows of one budget have
    ends: str  # how sure that is: " (12.6–21.6)"; empty where the figure says it all
    share: str  # of the step
    recoverable: str  # in milliseconds; "?" unknown, "-" nothing
    evidence: tuple[str, ...] = ()


FAILED_MEMORY = ("memory/failed", "memory-failed/", "memory-helps/")  # remarks on how the job ended


def job(diagnosis: Diagnosis) -> str:
    """What was read and on what it ran: one line."""
    source, machine = diagnosis.source, diagnosis.machine
    names = [PurePath(path).name or path for path in source.paths]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    parts = [fit(clean(names[0]), 48) + more] if names else []
    if memory_text.is_alone(diagnosis):  # which says nothing of the device
        return " · ".join(parts)
    device = fit(clean(machine.device), 40) if machine.device else "unknown device"
    parts.append(f"{machine.count} × {device}" if (machine.count or 0) > 1 else device)
    if source.ranks > 1:
        parts.append(f"{source.ranks} ranks")
    parts.append(_ceilings(machine))
    return " · ".join(parts)


def _ceilings(machine: Machine) -> str:
    """Where the ceilings come from, and whether that is this device on a quiet machine."""
    given = machine.ceilings
    source, origin, device = (clean(str(given.get(name) or "")) for name in ("source", "origin", "device"))
    if source not in ("measured", "table"):
        return "ceilings unknown"
    whose = f" of {fit(device, 40)}" if device and machine.device and device != clean(machine.device) else ""
    if source == "table":
        return f"ceilings{whose} from the table"
    if given.get("doubt"):
        return f"ceilings{whose} measured on a busy machine"
    if origin and not origin.startswith(MEASURED):  # a file that does not say how it came about
        return f"ceilings{whose} from {fit(PurePath(origin).name, 40)}"
    return f"ceilings{whose} measured"


def step(diagnosis: Diagnosis) -> str:
    """The step time, how sure it is and where it comes from."""
    step = diagnosis.step
    if step.ms is None:
        return "unknown"
    if step.found_by == KERNELS_ALONE:
        count = sum(one.calls for one in diagnosis.counted)
        return f"{format_ms(step.ms)} in {count:,} kernels, each run by itself: no step and no gaps"
    text = format_ms(step.ms)
    if is_wide(step.low_ms, step.high_ms):
        text += f" ({_bare_interval(step.low_ms, step.high_ms)})"
    parts = [f"{text} {_STEP_SOURCES[step.source]}", _count(step), *_spread(step)]
    if (
        step.profiled_ms is not None
        and step.source != "trace"
        and abs(step.profiled_ms / step.ms - 1) > NOTED_DIFFERENCE
    ):
        parts.append(f"{format_ms(step.profiled_ms)} under the profiler")
    return " · ".join(parts)


def whole(diagnosis: Diagnosis) -> str:
    """What the budget is of: kernels alone make no step."""
    return "kernel time" if diagnosis.step.found_by == KERNELS_ALONE else "step"


_STEP_SOURCES = {
    "measured": "measured",
    "given": "as given",
    "trace": "as traced",
    "estimated": "estimated from the trace",
}


def _spread(step: Step) -> list[str]:
    if (
        step.p10_ms is None
        or step.p90_ms is None
        or step.count < FEWEST_STEPS_FOR_SPREAD
        or step.source in ("given", "estimated")
    ):
        return []  # then the percentiles are of profiled steps, another quantity than the step beside them
    return [f"p10–p90 {format_interval(step.p10_ms, step.p90_ms)}"]


def _count(step: Step) -> str:
    text = f"{step.count} step" + ("" if step.count == 1 else "s")
    return text + (f", {step.discarded} dropped" if step.discarded else "")


def _bare_interval(low: float | None, high: float | None) -> str:
    """The same without its unit, for use beside a figure that has one."""
    text = format_interval(low, high)
    return text.rpartition(" ")[0] if text.count(" ") == 1 else text


def speed(diagnosis: Diagnosis) -> str:
    """Throughput and memory, as far as they are known."""
    parts = []
    if diagnosis.throughput is not None:
        value, unit = diagnosis.throughput.value, clean(diagnosis.throughput.unit)
        parts.append(f"{value:,.0f} {unit}" if value >= WHOLE_FROM else f"{value:.3g} {unit}")
    if diagnosis.memory.peak_gib is not None:
        parts.append(f"peak memory {memory_text.peak(diagnosis.memory)}")
    return " · ".join(parts)


def mfu(diagnosis: Diagnosis) -> str:
    """MFU with the peak it is a share of, beside what jobs usually reach."""
    mfu = diagnosis.mfu
    if mfu.mfu is None or not 0 <= mfu.mfu <= 1:  # above the peak the model is wrong: refused, never printed
        return ""
    text = format_share(mfu.mfu)
    if mfu.hfu is not None and mfu.mfu < mfu.hfu <= 1 and format_share(mfu.hfu) != text:
        text += f" (HFU {format_share(mfu.hfu)})"
    if mfu.peak_tflops is not None:
        source = f" ({fit(clean(mfu.source), 70)})" if mfu.source else ""
        text += f" of {mfu.peak_tflops:.0f} TFLOP/s{source}"
    return f"{text}; {MFU_USUAL}"


_PLACES_FROM_MS = (1000, 10, 1)  # from so many ms on no, one or two decimals; below the last, three


def bars(diagnosis: Diagnosis, folded: bool = True) -> list[Bar]:
    """The budget, longest first. `folded`: small causes become one row, but never the wall or the next."""
    rows = sorted((row for row in diagnosis.budget if row.ms > 0), key=lambda row: -row.ms)
    kept = _kept(diagnosis, rows) if folded else rows
    left = [row for row in rows if row not in kept]
    if len(left) == 1:
        kept, left = rows, []
    shown = [*kept, *([_fold(left)] if left else [])]
    step = diagnosis.step.ms
    places = decimals(step or max((row.ms for row in shown), default=0.0))
    return [_bar(row, step, places) for row in shown]


def _kept(diagnosis: Diagnosis, rows: list[BudgetRow]) -> list[BudgetRow]:
    """Rows that stand for themselves on one screen."""
    named = {diagnosis.wall.cause, diagnosis.wall.next.cause if diagnosis.wall.next else None}
    named |= {pair[-1] for pair in diagnosis.wall.between or [] if pair}
    smallest = FOLDED_SHARE * (diagnosis.step.ms or sum(row.ms for row in rows))
    return [
        row
        for index, row in enumerate(rows)
        if row.cause in named or (row.ms >= smallest and index < BARS_SHOWN)
    ]


def decimals(longest_ms: float) -> int:
    """Decimals that give every row of one budget the same unit and the longest three figures."""
    return next((places for places, from_ms in enumerate(_PLACES_FROM_MS) if longest_ms >= from_ms), 3)


def _bar(row: BudgetRow, step_ms: float | None, places: int) -> Bar:
    gain = row.recoverable_ms
    return Bar(
        wall=row.wall or "",
        cause=clean(row.cause),
        ms=row.ms,
        recoverable_ms=gain,
        time=f"{row.ms:.{places}f}",
        ends=f" ({row.low_ms:.{places}f}–{row.high_ms:.{places}f})"
        if is_wide(row.low_ms, row.high_ms)
        else "",
        share=format_share(row.ms / step_ms) if step_ms else "?",
        recoverable="?" if gain is None else f"{gain:.{places}f}" if gain > 0 else "-",
        evidence=tuple(_evidence(item) for item in row.evidence),
    )


def _fold(rows: list[BudgetRow]) -> BudgetRow:
    known = [row.recoverable_ms for row in rows if row.recoverable_ms is not None]
    return BudgetRow(
        wall=None,
        cause=f"other ({len(rows)} causes)",
        ms=sum(row.ms for row in rows),
        low_ms=None,
        high_ms=None,
        recoverable_ms=sum(known) if known else None,
    )


EVIDENCE_SHOWN = 3


def evidence(diagnosis: Diagnosis) -> list[str]:
    """The lines that carry the verdict."""
    cause = diagnosis.wall.cause
    if diagnosis.watch is not None:
        return watched_text.lines(diagnosis.watch)[:EVIDENCE_SHOWN] if cause else []
    found = [item for row in diagnosis.budget if cause and row.cause == cause for item in row.evidence]
    return [_evidence(item) for item in found[:EVIDENCE_SHOWN]]


def known(diagnosis: Diagnosis) -> list[str]:
    """Where there is no verdict: the causes it is between, then the longest others, each with its evidence.

    Where no cause is known either: the longest kernels.
    """
    wall = diagnosis.wall
    if wall.wall is not None:
        return []
    if diagnosis.watch is not None:
        return watched_text.lines(diagnosis.watch)
    between = [pair[-1] for pair in wall.between or [] if pair]
    rows = [row for row in diagnosis.budget if row.ms > 0 and (row.wall is not None or row.evidence)]
    rows.sort(key=lambda row: (row.cause not in between, -row.ms))
    if not rows:
        kernels = sorted(diagnosis.kernels, key=lambda row: -row.ms)
        return [_known_kernel(row, diagnosis.step.ms) for row in kernels[:KNOWN_ROWS] if row.ms > 0]
    return [_known(row, diagnosis.step.ms) for row in rows[:KNOWN_ROWS]]


def _known(row: BudgetRow, step_ms: float | None) -> str:
    named = "unexplained" if row.wall is None else f"{clean(row.wall)} / {clean(row.cause)}"
    text = f"{_of_step(row.ms, step_ms)} {named}"
    return f"{text}: {_evidence(row.evidence[0])}" if row.evidence else text


def _known_kernel(row: KernelRow, step_ms: float | None) -> str:
    return f"{_of_step(row.ms, step_ms)} in {clean(row.op or '') or fit(kernel_name(row.name), 60)}"


def _of_step(part_ms: float, step_ms: float | None) -> str:
    return format_ms(part_ms) + (f" ({format_share(part_ms / step_ms)})" if step_ms else "")


def _evidence(item: Evidence) -> str:
    text = item.text
    if item.kernel:
        text = text.replace(item.kernel, fit(kernel_name(item.kernel), 40))
    text = clean(text)
    if item.line and clean(item.line) not in text:
        text += f" ({clean(item.line)})"
    return text


def verdict(diagnosis: Diagnosis) -> tuple[str, str]:
    """The title of the verdict and its sentence."""
    wall = diagnosis.wall
    if wall.wall is not None:
        return f"THE WALL: {wall.wall} / {wall.cause}", clean(wall.sentence)
    if memory_text.is_alone(diagnosis):
        return "MEMORY", clean(wall.sentence)
    if memory_text.ran_out(diagnosis):
        return "OUT OF MEMORY", clean(wall.sentence)
    pairs = " or ".join(" / ".join(clean(name) for name in pair) for pair in wall.between or [])
    sentence = (
        clean(wall.sentence)
        or "This input does not hold enough to name a wall; the notes say what is missing."
    )
    return "NO VERDICT YET", f"It may be {pairs}. {sentence}" if pairs else sentence


def next_wall(diagnosis: Diagnosis) -> str:
    following = diagnosis.wall.next
    if following is None:
        return ""
    at = f", at {format_ms(following.at_ms)} per step" if following.at_ms is not None else ""
    return f"{following.wall} / {following.cause}{at}"


def phases(diagnosis: Diagnosis) -> str:
    shown = [phase for phase in diagnosis.phases if phase.ms > PHASE_SHOWN_SHARE * (diagnosis.step.ms or 0)]
    return " · ".join(f"{phase.phase} {format_ms(phase.ms)}" for phase in shown)


def quality(diagnosis: Diagnosis) -> str:
    """What is wrong with the input, where that matters to the answer; else nothing."""
    quality = diagnosis.quality
    few = BAD_EVENTS_SHARE * quality.events
    found = [
        ("the file is cut off, and the rest is lost", quality.cut_off),
        (f"{quality.damaged:,} events were damaged and left out", quality.damaged),
        (f"{quality.repaired:,} events were repaired", quality.repaired > few),
        (f"{quality.kernels_without_launch:,} kernels have no launch", quality.kernels_without_launch > few),
        (
            f"{quality.launches_without_kernel:,} launches have no kernel",
            quality.launches_without_kernel > few,
        ),
        (
            f"{quality.steps_without_device_work:,} steps have no device work",
            quality.steps_without_device_work,
        ),
    ]
    problems = [text for text, matters in found if matters]
    if quality.modelled_share is not None and quality.modelled_share < MODELLED_SHARE:
        problems.append(
            f"the FLOPs and bytes of only {format_share(quality.modelled_share)} of kernel time are known"
        )
    if quality.above_spec_share is not None and quality.above_spec_share > ABOVE_SPEC_SHARE:
        problems.append(
            f"{format_share(quality.above_spec_share)} of kernel time beats the ceiling (model or cache)"
        )
    return "; ".join(problems)


def out_of_memory(diagnosis: Diagnosis) -> list[str]:
    """What the job asked for and did not get, and what would fit: the first that a person wants to know."""
    told = zip(diagnosis.notes, diagnosis.remarks, strict=False)
    return [clean(note) for note, remark in told if remark.id.startswith(FAILED_MEMORY)]


def notes(diagnosis: Diagnosis) -> list[str]:
    """What a person should know besides: first a crash and the environment, then what was missing."""
    problem = quality(diagnosis)
    crash = diagnosis.source.crash
    ended = [f"The job failed ({crash}): this is what was measured until then."] if crash else []
    failed = out_of_memory(diagnosis)
    found = [
        *ended,
        *failed,
        *diagnosis.environment,
        *([f"This input: {problem}."] if problem else []),
        *(note for note in diagnosis.notes if clean(note) not in failed),
    ]
    said = diagnosis.cost.get("sentence") if _costs(diagnosis.cost) else None
    return [clean(note) for note in [*found, *([str(said)] if said else [])]]


def _costs(cost: dict[str, Any]) -> bool:
    """Whether findwall made the steps longer by more than a person would want to know of."""
    compared = cost.get("shadow_share")
    shadow = compared if isinstance(compared, dict) else {}
    after = cost.get("step_after_trace") if isinstance(cost.get("trace"), dict) else None
    stays = after is not None and bool(cost["trace"].get("profiler_stays"))
    shares = [cost.get("hook_share"), shadow.get("low"), after - 1 if stays and after is not None else None]
    return any(isinstance(share, int | float) and share > COST_SHARE for share in shares)
