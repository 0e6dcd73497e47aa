"""The document of a run whose device was traced."""

from __future__ import annotations

import numpy as np

from findwall.attribute.conditions import in_line_share, timed_causes
from findwall.attribute.facts import LISTED_CAUSE_SHARE, Facts
from findwall.attribute.figures import listed
from findwall.attribute.job import captured_share, graph_share
from findwall.attribute.mfu import utilisation
from findwall.attribute.overview import device_times, peak_memory
from findwall.attribute.phases import split_by_module, split_by_phase
from findwall.attribute.reading import Scenario
from findwall.attribute.without_gradients import told_without_gradients
from findwall.examine.kinds import elapsed_shares, kind_rows
from findwall.examine.questions import answer_questions
from findwall.examine.remarks import gather_notes
from findwall.examine.rows import kernel_rows, machine, memory, step_of, throughput, warnings
from findwall.examine.too_early import TOO_EARLY, too_early
from findwall.fixes import takes_out
from findwall.fixes.prescribe import prescribe
from findwall.fixes.road import road
from findwall.fixes.what_if import what_if
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, WALL_OF, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import (
    NO_GAIN,
    SCHEMA,
    BudgetRow,
    DeviceTimeline,
    Diagnosis,
    Dilation,
    Mfu,
    ModuleRow,
    Next,
    NotWorthIt,
    Phase,
    Prescription,
    Quality,
    Source,
    TimelineSummary,
    Wall,
)
from findwall.model.events import NSYS
from findwall.model.run import Run
from findwall.structure.left_out import CUT_AWAY, START_UP
from findwall.units import format_ms, format_share, ms
from findwall.walls import cause_modules
from findwall.walls.verdict import NO_ROOF, Verdict, decide

ROOFS = ("at-the-roof", "memory-roof")  # verdicts that rest on how high the ceilings are
DOUBTFUL_ROOF = "But that ceiling was measured on a busy machine: run `findwall ceilings --refresh` first."
ROUNDING_SHARE = 1e-9  # of the step: what sums of floats are off by
MORE_TRACED = 20  # steps, where the few that are usually traced were not like those that were timed
TIMED_WAITS = {"loader-starved": "for the loader", "gc-pause": "for the garbage collector"}


def diagnose_device(run: Run, ranks: list[Facts], asked: str | None = None) -> Diagnosis:
    """The verdict of the rank that speaks, with all ranks' devices in the timeline. `asked`: fixes that a
    person asks about."""
    facts = ranks[0]
    verdict = decide(facts)
    settled = verdict.why_not not in TOO_EARLY
    prescriptions, not_worth_it = prescribe(facts, verdict.cause, timed_causes(facts.rank) if settled else ())
    use = utilisation(facts)
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), len(run.ranks), run.crash),
        machine=machine(run, facts.ceilings),
        step=step_of(facts),
        questions=answer_questions(facts),
        wall=_wall(_after_advice(facts, prescriptions, not_worth_it), verdict, prescriptions),
        timeline=_timeline(ranks),
        quality=_quality(facts),
        budget=_budget(facts),
        phases=_phases(facts),
        memory=memory(run, peak_memory(facts.whole.timeline)),
        prescriptions=prescriptions,
        not_worth_it=not_worth_it,
        mfu=Mfu(use.mfu, use.hfu, use.peak / 1e12 if use.peak else None, use.flops, use.source),
        throughput=throughput(run, facts.step),
        kernels=kernel_rows(facts),
        trials=list(run.trials),
        notes=gather_notes(facts),
        modules=[ModuleRow(module, ms(spent)) for module, spent in split_by_module(facts).items()],
        environment=warnings(run, facts.rank, verdict.between if verdict.cause is None else (verdict.cause,)),
        cost=run.cost,
        kinds=kind_rows(facts.rank, facts) if facts.reading.source == "measured" else [],
        road=road(facts, verdict.cause, prescriptions),
        what_if=what_if(facts, asked) if asked is not None else None,
        elapsed=elapsed_shares(facts.rank),
    )


def _phases(facts: Facts) -> list[Phase]:
    """The phases' times; what is below nothing by rounding alone is nothing."""
    slack = ROUNDING_SHARE * facts.step
    return [
        Phase(phase, 0.0 if -slack <= spent <= 0 else ms(spent))  # type: ignore[arg-type]
        for phase, spent in split_by_phase(facts).items()
    ]


def _after_advice(facts: Facts, prescriptions: list[Prescription], refusals: list[NotWorthIt]) -> Facts:
    """The facts with what is advised and refused: the verdict's sentence agrees with both."""
    refused = frozenset(one.fixes[0] for one in refusals if one.at_most_speedup == NO_GAIN)
    found: dict[str, float] = {}  # of fixes that move only one cause: what the best saves, in ms a step
    for one in prescriptions:
        if len(one.moves) == 1 and one.step_ms.low is not None and not takes_out(one.fixes):
            cause, saved = one.moves[0], ms(facts.step) - one.step_ms.low
            found[cause] = max(found.get(cause, 0.0), saved)
    return facts.advised(refused, found)


def _wall(facts: Facts, verdict: Verdict, prescriptions: list[Prescription]) -> Wall:
    if verdict.cause is not None:
        following = Next(WALL_OF[verdict.next], verdict.next) if verdict.next else None
        sentence = cause_modules()[verdict.cause].sentence(facts)
        if facts.ceilings.doubt and verdict.cause in ROOFS:
            sentence += f" {DOUBTFUL_ROOF}"
        return Wall(verdict.wall, verdict.cause, sentence, following)
    between = [[WALL_OF[cause], cause] for cause in verdict.between if cause in WALL_OF]
    is_early = verdict.why_not in TOO_EARLY
    sentence = _undecided(facts, verdict) + _worth_a_trial(facts, prescriptions)
    sentence += "" if is_early else told_without_gradients(facts)
    return Wall(None, None, sentence, None, between, is_early)


def _worth_a_trial(facts: Facts, prescriptions: list[Prescription]) -> str:
    """What is prescribed without a verdict: the time it moves was measured, what it gives nobody knows."""
    if not prescriptions:
        return ""
    timed = timed_causes(facts.rank)
    moved = [cause for cause in timed if any(cause in one.moves for one in prescriptions)]
    waits = listed([f"{format_ms(facts.spent_ms(cause))} per step {TIMED_WAITS[cause]}" for cause in moved])
    fixes = [f"`{one.fixes[0]}`" for one in prescriptions]
    return (
        f" Whatever the wall is, the job waits {waits}: `findwall try` shows whether {listed(fixes)} "
        f"{'helps' if len(fixes) == 1 else 'help'}."
    )


def _blindest(facts: Facts) -> Scenario:
    """The reading that has most of unknown cause; the likely one where it has about as much."""

    def share(one: Scenario) -> float:
        return facts.unknown(one) / max(one.step, 1.0)

    most, likely = max(facts.reading.scenarios, key=share), facts.reading.likely
    return likely if share(likely) >= NEARLY_ALL * share(most) else most


def _unexplained(facts: Facts) -> str:
    """More idle time of unknown cause than anything known gives back: where it lies, how to find out."""
    blind = _blindest(facts)
    idle, step = format_ms(ms(blind.idle[UNKNOWN])), format_ms(ms(blind.step))
    known = f"For {idle} of the {step} step the device waits, and the trace does not show why: "
    was_run = facts.reading.source == "measured"  # then `findwall run` alone would do the same again
    if blind.left_over > MAJORITY_SHARE * blind.idle[UNKNOWN]:
        why = "its steps are shorter than the timed ones. Trace"
        if was_run:
            return f"{known}{why} more of them (`findwall run --trace-steps {MORE_TRACED}`)."
        return f"{known}{why} steps that are as slow as those, or let `findwall run` measure the job."
    if was_run:
        return known + (
            "rows are missing, or the job was still starting up. Trace later steps (`findwall run --wait "
            "STEPS`)."
        )
    return known + (
        "rows are missing, or it was recorded during start-up. Record whole steps after warm-up, with CPU "
        "and CUDA activities, or let `findwall run` do it."
    )


def _small_kernels(facts: Facts) -> str:
    """The device is never without work, and does hardly any: no host is to blame."""
    spent, step = format_ms(facts.spent_ms("launch-bound")), format_ms(ms(facts.step))
    return (
        f"{spent} of the {step} step goes to kernels too small to use the device, which runs them one after "
        "the other without a pause. Merge them (torch.compile), or give each more work."
    )


def _no_roof(facts: Facts) -> str:
    """Nothing worth it and no roof either: what fills the step."""
    spent = facts.spent()
    cause = next(iter(spent.ranked()))
    return (
        f"{format_ms(ms(spent[cause]))} of the {format_ms(ms(facts.step))} step goes to {cause}, of which "
        f"hardly anything can be saved. No cause recovers {100 * WORTH_IT:.0f} % and no kernels run at a "
        "roof, "
        "so there is no wall: give the device more work per step."
    )


def _unnamed_host(facts: Facts) -> str:
    """CUDA calls alone."""
    ops = facts.timeline.header.ops_option
    spent, step = format_ms(facts.spent_ms("host-work")), format_ms(ms(facts.step))
    return (
        f"For {spent} of the {step} step the device waits while the host makes no CUDA call. Whether it "
        f"waits for data or does other work is unknown without torch's ops: record with {ops}, or use "
        "`findwall run`."
    )


def _undecided(facts: Facts, verdict: Verdict) -> str:
    reading = facts.reading
    if verdict.why_not in TOO_EARLY:
        return too_early(facts, verdict.why_not)
    if verdict.why_not == "dilation":
        causes = " and ".join(verdict.between)
        return (
            f"The trace alone cannot tell {causes} apart: without the profiler the step takes something "
            f"between {format_ms(ms(reading.short.step))} and {format_ms(ms(reading.long.step))}. Time a few "
            "steps without the profiler and pass that as --step-ms, or let `findwall run` measure the job."
        )
    if verdict.why_not == "unnamed-host":
        return _unnamed_host(facts)
    if verdict.why_not == "no-shapes":
        return (
            f"{format_ms(ms(facts.reading.likely.busy))} of the {format_ms(ms(facts.step))} step is device "
            "work, and without shapes it is unknown how much of that could come back. Record with "
            f"{facts.timeline.header.shapes_option}."
        )
    if verdict.why_not == "unexplained":
        return _unexplained(facts)
    if verdict.why_not == "contended":
        return (
            f"For {format_share(in_line_share(facts.rank))} of the time the job's thread waited for a core "
            "that "
            f"other processes used, so what looks like {verdict.seeming} may be their doing. Run the job "
            "alone, or on cores of its own (taskset)."
        )
    if verdict.why_not == "ceilings":
        return (
            "Only its own work takes the step's time, and it is unknown how near that runs to the device's "
            "ceiling. Run `findwall ceilings` (under 30 s), then read this again."
        )
    if verdict.why_not == "small-kernels":
        return _small_kernels(facts)
    if verdict.why_not == NO_ROOF:
        return _no_roof(facts)
    blindest = _blindest(facts)
    gain, step = facts.recoverable(blindest), max(blindest.step, 1.0)
    known = float(np.nanmax(gain.values, initial=0.0)) / step
    blind = max(facts.spent(blindest).of(gain.not_known()) - blindest.idle[UNKNOWN], 0.0) / step
    rest = (
        "nothing else in the step is worth 5 %"
        if known < WORTH_IT
        else "that may be worth more than what is known"
    )
    return (
        f"{format_share(blind)} of the step goes to device work whose floor is unknown{_why_blind(facts)}, "
        f"and {rest}."
    )


def _why_blind(facts: Facts) -> str:
    if not facts.ceilings.known:
        device = facts.ceilings.device or "unnamed"
        if not facts.timeline.header.devices and facts.timeline.header.recorder == NSYS:
            return " (the export does not name the GPU; pass --gpu NAME)"
        return f" (no ceilings are known for this device, {device}; `findwall ceilings` measures them)"
    if not facts.timeline.header.shapes:
        return f" (the trace has no shapes; record it with {facts.timeline.header.shapes_option})"
    if graph_share(facts) > 0 and not captured_share(facts):
        if facts.timeline.header.recorder == NSYS:
            return (
                " (kernels that a CUDA graph replays have no shapes; record the same step once without the "
                "graph)"
            )
        return (
            " (kernels replayed from a CUDA graph have no shapes; put a trace of the graph's capture into a "
            "capture_traces folder beside the file, or trace the same step once without the graph)"
        )
    return " (kernels of unknown ops)"


def _timeline(ranks: list[Facts]) -> TimelineSummary:
    per_device = []
    speaking = None
    for at, facts in enumerate(ranks):
        for device in device_times(facts.whole.timeline, facts.whole.links):
            if at == 0 and device.device == facts.steps.device:
                speaking = device
            streams = [{"stream": s.stream, "events": s.rows, "busy_ms": ms(s.busy)} for s in device.streams]
            idle = 1 - device.busy / device.span if device.span else None
            number = facts.rank.number
            per_device.append(DeviceTimeline(device.device, number, ms(device.busy), idle, streams))
    if speaking is None:
        return TimelineSummary(None, None, None, None, None, per_device)
    talk = speaking.communication
    return TimelineSummary(
        span_ms=ms(speaking.span),
        busy_ms=ms(speaking.busy),
        idle_share=1 - speaking.busy / speaking.span if speaking.span else None,
        comm_ms=ms(talk),
        comm_hidden_share=speaking.hidden / talk if talk else None,
        per_device=per_device,
    )


def _quality(facts: Facts) -> Quality:
    quality, kernels = facts.timeline.quality, facts.kernels
    launched = ~kernels.orphan & ~kernels.communication  # what a message costs is not its work
    total = float(kernels.duration[launched].sum())
    reading = facts.reading
    profiled = float(facts.whole.steps.lengths.mean())
    known = reading.source in ("given", "measured")
    return Quality(
        events=quality.events,
        kernels_without_launch=facts.whole.links.kernels_without_launch,
        launches_without_kernel=facts.whole.links.launches_without_kernel,
        steps_without_device_work=len(facts.whole.steps.without_device_work),
        cut_off=quality.cut_off,
        dilation=Dilation(
            profiled / facts.step if facts.step > 0 else None,
            "measured" if known else "estimated",
            reading.likely.calibration.cost_us,
            reading.likely.calibration.pace if known else None,
            reading.replay_error if known else None,
        ),
        damaged=quality.damaged,
        repaired=quality.repaired,
        ignored=dict(quality.ignored),
        above_spec_share=(
            float(kernels.duration[launched & kernels.above_spec].sum()) / total if total else None
        ),
        modelled_share=float(kernels.duration[launched & kernels.modelled].sum()) / total if total else None,
        start_up_ms=ms(facts.whole.left_out.of(*START_UP).length),
        cut_away_ms=ms(facts.whole.left_out.of(CUT_AWAY).length),
    )


def _budget(facts: Facts) -> list[BudgetRow]:
    """A row a cause, largest first; the rows sum to the step."""
    spent, gain = facts.spent(), facts.recoverable()
    low, high = facts.spent(facts.reading.short), facts.spent(facts.reading.long)
    rows = []
    for cause, took in sorted(spent.items(), key=lambda item: -item[1]):
        if took <= LISTED_CAUSE_SHARE * facts.step or cause == UNKNOWN:
            continue
        evidence = cause_modules()[cause].evidence(facts)
        recoverable = None if np.isnan(gain[cause]) else ms(max(gain[cause], 0.0))
        bounds = sorted((ms(low[cause]), ms(took), ms(high[cause])))
        rows.append(BudgetRow(WALL_OF[cause], cause, ms(took), bounds[0], bounds[-1], recoverable, evidence))
    unknown = facts.unknown()
    if unknown > 0:
        rows.append(BudgetRow(None, UNKNOWN, ms(unknown), None, None, None))
    return rows
