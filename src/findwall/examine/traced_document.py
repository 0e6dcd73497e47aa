"""The document of a run whose device was traced."""

from __future__ import annotations

import numpy as np

from findwall.causes import all_causes
from findwall.causes.verdict import NO_ROOF, Verdict, decide
from findwall.examine.document_rows import (
    answer_questions,
    kernel_rows,
    machine,
    step_of,
    throughput,
    warnings,
)
from findwall.examine.job_memory import with_job
from findwall.examine.ranks_told import told_of_ranks
from findwall.examine.remarks import elapsed_shares, gather_notes, kind_rows, what_once
from findwall.facts.facts import LISTED_CAUSE_SHARE, Facts
from findwall.facts.gradient_free_work import beside_gradients
from findwall.facts.step_traits import captured_share, graph_share, on_cores
from findwall.facts.step_views import (
    device_times,
    split_by_module,
    split_by_phase,
    utilisation,
)
from findwall.facts.waits import set_ups
from findwall.fixes import takes_out
from findwall.fixes.prescribe import left_out, prescribe
from findwall.fixes.road import road
from findwall.fixes.what_if import what_if
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, ROOFS, WALL_OF, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, Figure, advises, known, promised_ms
from findwall.model.diagnosis import (
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
from findwall.model.machine import MATH_TYPES
from findwall.model.measured_run import Run
from findwall.replay.step_reading import Scenario
from findwall.step.step_facts import CUT_AWAY, START_UP
from findwall.step.timed_steps import in_line_share, timed_causes
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

ROUNDING_SHARE = 1e-9  # of the step: what sums of floats are off by
MORE_TRACED = 20  # steps, where the few that are usually traced were not like those that were timed


def diagnose_device(run: Run, ranks: list[Facts], asked: str | None = None) -> Diagnosis:
    """The verdict of the rank that speaks, with all ranks' devices in the timeline. `asked`: fixes that a
    person asks about."""
    facts = ranks[0]
    verdict = decide(facts)
    settled = verdict.why_not not in TOO_EARLY
    prescriptions, not_worth_it = prescribe(facts, verdict.cause, timed_causes(facts.rank) if settled else ())
    use = utilisation(facts)
    held, on_memory = with_job(run, facts.rank)
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
        memory=held,
        prescriptions=prescriptions,
        not_worth_it=not_worth_it,
        mfu=Mfu(use.mfu, use.hfu, use.peak / 1e12 if use.peak else None, use.flops, use.source),
        throughput=throughput(run, facts.step),
        kernels=kernel_rows(facts),
        trials=list(run.trials),
        sweep=run.sweep,
        notes=[],
        remarks=[*gather_notes(facts), *on_memory],
        modules=[ModuleRow(module, ms(spent)) for module, spent in split_by_module(facts).items()],
        environment=warnings(run, facts.rank, verdict.between if verdict.cause is None else (verdict.cause,)),
        cost=run.cost,
        kinds=kind_rows(facts.rank, facts) if facts.reading.source == "measured" else [],
        road=road(facts, verdict.cause, prescriptions),
        what_if=what_if(facts, asked) if asked is not None else None,
        elapsed=elapsed_shares(facts.rank),
        ranks=told_of_ranks(facts),
    )


def _phases(facts: Facts) -> list[Phase]:
    """The phases' times; what is below nothing by rounding alone is nothing."""
    slack = ROUNDING_SHARE * facts.step
    return [
        Phase(phase, 0.0 if -slack <= spent <= 0 else ms(spent))  # type: ignore[arg-type]
        for phase, spent in split_by_phase(facts).items()
    ]


def _after_advice(facts: Facts, prescriptions: list[Prescription], refusals: list[NotWorthIt]) -> Facts:
    """The facts with what is advised and what is not: the verdict's sentence agrees with both."""
    found: dict[str, float] = {}  # of fixes that move only one cause: what the best saves, in ms a step
    for one in prescriptions:
        if len(one.moves) == 1 and one.step_ms.low is not None and not takes_out(one.fixes):
            cause, saved = one.moves[0], ms(facts.step) - one.step_ms.low
            found[cause] = max(found.get(cause, 0.0), saved)
    return facts.advised(left_out(facts, prescriptions, refusals), found)


def _wall(facts: Facts, verdict: Verdict, prescriptions: list[Prescription]) -> Wall:
    if verdict.cause is not None:
        following = Next(WALL_OF[verdict.next], verdict.next) if verdict.next else None
        claim: Claim = all_causes()[verdict.cause].claim(facts)
        if facts.ceilings.doubt and verdict.cause in ROOFS:  # it rests on how high the ceilings are
            claim = Claim("sentences", parts=[claim, Claim("roof/doubtful")])
        saves = promised_ms(claim)
        return Wall(
            verdict.wall, verdict.cause, "", following, claim=claim, saves_ms=saves, advises=advises(claim)
        )
    between = [[WALL_OF[cause], cause] for cause in verdict.between if cause in WALL_OF]
    is_early = verdict.why_not in TOO_EARLY
    parts = [_undecided(facts, verdict), *_worth_a_trial(facts, prescriptions)]
    parts += [] if is_early else beside_gradients(facts)
    claim = Claim("sentences", parts=parts)
    return Wall(None, None, "", None, between, is_early, claim, why_not=verdict.why_not)


def _worth_a_trial(facts: Facts, prescriptions: list[Prescription]) -> list[Claim]:
    """What is prescribed without a verdict: the time it moves was measured, what it gives nobody knows."""
    if not prescriptions:
        return []
    moved = [cause for cause in timed_causes(facts.rank) if any(cause in one.moves for one in prescriptions)]
    waits = [Claim(f"waits/{cause}", {"waits_ms": facts.spent_ms(cause)}) for cause in moved]
    fixes: dict[str, Figure] = {f"fix{at}": one.fixes[0] for at, one in enumerate(prescriptions, 1)}
    return [Claim("undecided/worth-a-trial", fixes, parts=waits)]


def _blindest(facts: Facts) -> Scenario:
    """The reading that has most of unknown cause; the likely one where it has about as much."""

    def share(one: Scenario) -> float:
        return facts.unknown(one) / max(one.step, 1.0)

    most, likely = max(facts.reading.scenarios, key=share), facts.reading.likely
    return likely if share(likely) >= NEARLY_ALL * share(most) else most


def _unexplained(facts: Facts) -> Claim:
    """More idle time of unknown cause than anything known gives back: where it lies, how to find out."""
    blind = _blindest(facts)
    figures: dict[str, Figure] = {
        "waits_ms": ms(blind.idle[UNKNOWN]),
        "step_ms": ms(blind.step),
        "was_run": facts.reading.source == "measured",  # then `findwall run` alone would do the same again
        "shorter": blind.left_over > MAJORITY_SHARE * blind.idle[UNKNOWN],
        "more_steps": MORE_TRACED,
    }
    return Claim("undecided/unexplained", figures)


def _undecided(facts: Facts, verdict: Verdict) -> Claim:
    """Why there is no verdict, and what to do to get one."""
    reading, why, recorder = facts.reading, verdict.why_not, facts.timeline.header.recorder
    if why in TOO_EARLY:
        return too_early(facts, why)
    if why == "unexplained":
        return _unexplained(facts)
    fills = next(iter(facts.spent().ranked()), UNKNOWN)  # the step, where nothing is worth it
    step = ms(facts.step)
    figures: dict[str, dict[str, Figure]] = {
        "dilation": {
            **{f"cause{at}": cause for at, cause in enumerate(verdict.between, 1)},
            "short_ms": ms(reading.short.step),
            "long_ms": ms(reading.long.step),
        },
        "unnamed-host": {"step_ms": step, "spent_ms": facts.spent_ms("host-work"), "recorder": recorder},
        "no-shapes": {"step_ms": step, "busy_ms": ms(reading.likely.busy), "recorder": recorder},
        "contended": {"waited_share": in_line_share(facts.rank), "cause": verdict.seeming},
        "crowded-trace": {"times": 1.0 / reading.likely.pace, "cause": verdict.seeming},
        "small-kernels": {"step_ms": step, "spent_ms": facts.spent_ms("launch-bound")},
        NO_ROOF: {
            "step_ms": step,
            "spent_ms": ms(facts.spent()[fills]),
            "cause": fills,
            "worth_share": WORTH_IT,
        },
        "ceilings": {},
    }
    return Claim(f"undecided/{why}", figures[why]) if why in figures else _no_floor(facts)


def _no_floor(facts: Facts) -> Claim:
    """Too much device work whose floor nobody knows."""
    blindest = _blindest(facts)
    gain, step = facts.recoverable(blindest), max(blindest.step, 1.0)
    known_share = float(np.nanmax(gain.values, initial=0.0)) / step
    blind = max(facts.spent(blindest).of(gain.not_known()) - blindest.idle[UNKNOWN], 0.0) / step
    figures: dict[str, Figure] = {"blind_share": blind, "alone": known_share < WORTH_IT}
    return Claim("undecided/no-floor", figures, parts=[_why_blind(facts)])


def _why_blind(facts: WorkFacts) -> Claim:
    header = facts.timeline.header
    if not facts.ceilings.known:
        if not header.devices and header.recorder == NSYS:
            return Claim("blind/unnamed-gpu")
        return Claim("blind/ceilings", names=known(device=facts.ceilings.device))
    if not header.shapes:
        return Claim("blind/shapes", {"recorder": header.recorder})
    if graph_share(facts) > 0 and not captured_share(facts):
        return Claim("blind/graph", {"recorder": header.recorder})
    if (unmeasured := _unmeasured_format(facts)) is not None:
        return Claim("blind/format", {"format": unmeasured})
    return Claim("blind/ops")


def _unmeasured_format(facts: WorkFacts) -> str | None:
    """The format of products on cores that most of the time without a floor goes to, where nobody measured
    how fast they are in it."""
    own = np.where(np.isnan(facts.atoms.floor), facts.atoms.own, 0.0)
    index = facts.atoms.index
    known = facts.kernels.modelled[index] & (facts.kernels.math_index[index] >= 0)
    spent = np.bincount(facts.kernels.math_index[index][known], own[known], minlength=len(MATH_TYPES))
    most = MATH_TYPES[int(np.argmax(spent))]
    fills = float(spent.max()) > MAJORITY_SHARE * float(own.sum())
    return most if on_cores(facts) and fills and most not in facts.ceilings.flops else None


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
        evidence = all_causes()[cause].evidence(facts)
        recoverable = None if np.isnan(gain[cause]) else ms(max(gain[cause], 0.0))
        bounds = sorted((ms(low[cause]), ms(took), ms(high[cause])))
        rows.append(BudgetRow(WALL_OF[cause], cause, ms(took), bounds[0], bounds[-1], recoverable, evidence))
    unknown = facts.unknown()
    if unknown > 0:
        rows.append(BudgetRow(None, UNKNOWN, ms(unknown), None, None, None))
    return rows


# -- why there is no verdict on a job that still set itself up --------------------------------------------


TOO_EARLY = ("start-up", "growing", "too-early")


def too_early(facts: Facts, why: str) -> Claim:
    """What is said of one of TOO_EARLY."""
    step = ms(facts.step)
    if why == "growing":
        figures: dict[str, Figure] = {"spent_ms": facts.spent_ms("recompilation"), "step_ms": step}
        return Claim("too-early/growing", figures, {"op": set_ups(facts)[0].op})
    timed = facts.rank.step_times
    if why == "too-early" and timed is not None and timed.later_s is not None:
        return Claim("too-early/faster-later", {"step_ms": step, "later_ms": timed.later_s * 1e3})
    once = facts.whole.left_out.of(*START_UP).length
    recorded = once + int(facts.whole.steps.lengths.sum())
    figures = {
        "once_ms": ms(once),
        "recorded_ms": ms(recorded),
        "was_run": facts.reading.source == "measured",
    }
    return Claim("too-early/start-up", figures, parts=[what_once(facts)])
