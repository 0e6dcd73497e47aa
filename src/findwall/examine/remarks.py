"""What was missing, what was estimated, what was refused: the document's notes."""

from __future__ import annotations

import numpy as np

from findwall.facts.facts import Facts
from findwall.facts.figures import kinds_of, longer_steps, seen_doing, what_it_does
from findwall.facts.message_traffic import doubts_of
from findwall.facts.step_traits import captured_share
from findwall.model.catalogue import MENTION_SHARE, SMALL_PART, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, Figure, known, numbered, plain
from findwall.model.diagnosis import KindRow
from findwall.model.events import NSYS
from findwall.model.kinds import SELDOM, USUAL, StepKind
from findwall.model.measured_run import Rank, Run
from findwall.probe.probe_plan import far_off
from findwall.step.step_bounds import step_numbers
from findwall.step.step_facts import CUT_AWAY, NOT_RECORDED, START_UP, StepFacts
from findwall.step.timed_steps import holding_down
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

OPS_NAMED = 3  # in one note


def gather_notes(facts: Facts) -> list[Claim]:
    """Every remark, the ones that change how to read the verdict first."""
    measured = facts.reading.source == "measured"
    return [
        *_about_step(facts),
        *(about_kinds(facts.rank, facts) if measured else []),
        *about_elapsed(facts.rank),
        *_about_left_out(facts),
        *map(plain, facts.reading.notes),
        *map(plain, facts.whole.steps.notes),
        *_about_window(facts),
        *_about_recording(facts),
        *_about_captures(facts),
        *_about_links(facts),
        *_about_ranks(facts),
        *doubts_of(facts.run.nccl),
        *_about_model(facts),
        *_about_probes(facts),
        *_about_profiled(facts),
        *map(plain, facts.timeline.quality.notes),
        *notes_of_ranks(facts.run, facts.rank),
    ]


def _about_probes(facts: Facts) -> list[Claim]:
    off = far_off(facts)
    return [Claim("probes/far-off", names=numbered("op", sorted(set(off))[:OPS_NAMED]))] if off else []


def _about_profiled(facts: WorkFacts) -> list[Claim]:
    """What of a profile by Nsight Compute was used."""
    found = facts.profiled
    if found is None:
        return []
    figures: dict[str, Figure] = {"rows": found.rows, "kernels": found.kernels}
    if found.unmatched:
        figures |= {"unmatched": found.unmatched, "launches": found.launches}
    return [Claim("profiled/used", figures)]


def notes_of_ranks(run: Run, speaker: Rank) -> list[Claim]:
    """What was noted of the job, of the rank that speaks, and of the others under their number."""
    texts = [*run.notes, *speaker.notes]
    notes = list(map(plain, texts))
    for rank in run.ranks:
        if rank is speaker:
            continue
        named = f"rank {rank.number}"
        more = [note if named in note else f"{named}: {note}" for note in rank.notes if note not in texts]
        texts += more
        notes += map(plain, more)
        held = holding_down(rank)
        if held is not None:
            notes.append(Claim("ranks/as-slow", parts=[held]))
    return notes


def _about_step(facts: Facts) -> list[Claim]:
    reading = facts.reading
    if reading.source != "estimated":
        left = reading.likely.left_over
        longer = Claim("step/longer-than-traced", {"left_ms": ms(left)})
        return [longer] if left >= WORTH_IT * facts.step else []
    figures: dict[str, Figure] = {
        "short_ms": ms(reading.short.step),
        "long_ms": ms(reading.long.step),
        "profiled_ms": ms(float(facts.whole.steps.lengths.mean())),
    }
    return [Claim("step/estimated", figures)]


def what_once(facts: StepFacts) -> Claim:
    """The kinds of start-up, the one that takes longest first, and its longest call."""
    once = facts.whole.left_out.of(*START_UP)
    took = {reason: once.of(reason).length for reason in START_UP}
    kinds = [reason for reason in sorted(took, key=lambda one: -took[one]) if took[reason] > 0]
    call = facts.whole.timeline.name_of(int(once.row[int(np.argmax(once.end - once.start))]))
    return Claim("start-up/what", {f"kind{at}": kind for at, kind in enumerate(kinds, 1)}, {"call": call})


def _about_left_out(facts: Facts) -> list[Claim]:
    found = facts.whole.left_out
    cut, once = found.of(CUT_AWAY).length, found.of(*START_UP).length
    notes = [Claim("left-out/cut", {"left_ms": ms(cut)})] if cut > 0 else []
    if (paused := found.of(NOT_RECORDED).length) > 0:
        notes.append(Claim("left-out/not-recorded", {"left_ms": ms(paused)}))
    if once > MENTION_SHARE * facts.step:
        notes.append(Claim("left-out/once", {"left_ms": ms(once)}, parts=[what_once(facts)]))
    return notes


def _about_window(facts: StepFacts) -> list[Claim]:
    kept, steps = facts.steps.count, facts.whole.steps.count
    found = [*_about_cold_steps(facts), *_about_evaluations(facts)]
    if kept < steps:
        found.append(Claim("window/typical", {"kept": kept, "steps": steps}))
    return found


def _about_cold_steps(facts: StepFacts) -> list[Claim]:
    cold = facts.whole.cold_ms
    longest = max(cold, default=0.0)
    figures: dict[str, Figure] = {"steps": len(cold), "several": len(cold) > 1, "longest_ms": longest}
    return [Claim("window/cold", figures)] if cold else []


def _about_evaluations(facts: StepFacts) -> list[Claim]:
    recorded = facts.rank.timeline
    numbers = set() if recorded is None or not facts.rank.evaluated else set(step_numbers(recorded).tolist())
    held = len(numbers & facts.rank.evaluated)
    figures: dict[str, Figure] = {"held": held, "traced": len(numbers), "steps": facts.whole.steps.count}
    return [Claim("window/evaluations", figures)] if held else []


def _about_recording(facts: WorkFacts) -> list[Claim]:
    header = facts.timeline.header
    notes = [Claim("recording/no-shapes", {"recorder": header.recorder})] if not header.shapes else []
    if not facts.ceilings.known and not header.devices and header.recorder == NSYS:
        notes.append(Claim("recording/unnamed-gpu"))
    elif not facts.ceilings.known:
        notes.append(Claim("recording/no-ceilings", names=known(device=facts.ceilings.device)))
    if facts.ceilings.doubt:
        notes.insert(0, Claim("ceilings/doubt", parts=[plain(facts.ceilings.doubt)]))
    devices = {int(device) for device in facts.timeline.events.device[facts.kernels.row].tolist()}
    if len(devices) > 1:
        notes.append(Claim("recording/busiest", {"number": facts.steps.device, "devices": len(devices)}))
    return notes


def _about_captures(facts: WorkFacts) -> list[Claim]:
    share = captured_share(facts) if facts.rank.captures else None
    captures = {"captures": len(facts.rank.captures), "named_share": share}
    return [] if share is None else [Claim("captures/used", {**captures})]


def _about_links(facts: StepFacts) -> list[Claim]:
    ambiguous = facts.whole.links.ambiguous
    return [Claim("links/ambiguous", {"events": ambiguous})] if ambiguous else []


def _about_ranks(facts: Facts) -> list[Claim]:
    """Why the ranks could not be compared; how their profilers were started, where that took its time."""
    answer = facts.ranks.answer if facts.ranks is not None else None
    if answer is None or answer.why_not == "one":
        return []
    if answer.why_not:
        return [Claim("ranks/not-compared", {"why": answer.why_not, "messages": answer.messages})]
    skew, step = answer.entry_skew_ms, answer.step_ms
    if skew is None or step is None or skew < MENTION_SHARE * step:
        return []
    return [Claim("ranks/entered", {"skew_ms": skew})]


def _about_model(facts: Facts) -> list[Claim]:
    notes = []
    work = ~facts.kernels.orphan & ~facts.kernels.communication  # as the quality counts it
    total = float(facts.kernels.duration[work].sum())
    above = float(facts.kernels.duration[work & facts.kernels.above_spec].sum())
    if total and above > MENTION_SHARE * total:
        notes.append(Claim("model/above-spec", {"above_share": above / total}))
    if facts.share(UNKNOWN) > WORTH_IT:
        notes.append(Claim("model/no-known-cause", {"unknown_share": facts.share(UNKNOWN)}))
    return notes


# -- the kinds of steps and the job's whole time, as rows of the document ---------------------------------


BESIDE_STEPS = ("evaluation", "saving", "loader-start")


def kind_rows(rank: Rank, facts: Facts | None = None) -> list[KindRow]:
    """The kinds of steps there are; nothing where no step was timed."""
    kinds = _kinds(rank, facts)
    # The timed steps' shares are of the timed steps: together with those that came later they are fewer.
    timed = 1.0 - sum(one.share for one in kinds if one.name == SELDOM)
    return [
        KindRow(
            one.name,
            one.share if one.name == SELDOM else one.share * timed,
            one.mean * 1e3,
            one.every,
            claim=_what(one, rank, facts),
        )
        for one in kinds
    ]


def _kinds(rank: Rank, facts: Facts | None) -> tuple[StepKind, ...]:
    if facts is not None:
        return kinds_of(facts)
    return () if rank.step_times is None else rank.step_times.kinds()


def _what(kind: StepKind, rank: Rank, facts: Facts | None) -> Claim | None:
    return seen_doing(kind, rank.loader_workers) if facts is None else what_it_does(facts, kind)


def elapsed_shares(rank: Rank) -> dict[str, float] | None:
    """What the job's time went to, as shares of it."""
    found = rank.elapsed
    if found is None or found.total <= 0:
        return None
    parts = {
        "steps": found.steps,
        "start-up": found.start_up,
        "evaluation": found.evaluation,
        "saving": found.saving,
        "loader-start": found.loader_start,
        "other": found.other,
    }
    # Saving and loading may overlap what else is counted: together they are never more than all.
    total = max(found.total, sum(parts.values()))
    return {name: value / total for name, value in parts.items()}


def about_kinds(rank: Rank, facts: Facts | None = None) -> list[Claim]:
    """Steps that are not like the others."""
    kinds = _kinds(rank, facts)
    usual = next((kind for kind in kinds if kind.name == USUAL), None)
    if usual is None:
        return []
    return [
        Claim(
            "steps/of-a-kind",
            {"late": kind.name == SELDOM},
            parts=[longer_steps(kind, usual, _what(kind, rank, facts))],
        )
        for kind in kinds
        if kind.name != USUAL
    ]


def about_elapsed(rank: Rank) -> list[Claim]:
    """Where the job's time goes outside of its steps, if much of it does."""
    shares = elapsed_shares(rank)
    if shares is None or rank.elapsed is None:
        return []
    beside = {name: shares[name] for name in BESIDE_STEPS}
    if sum(beside.values()) < SMALL_PART:
        return []
    return [Claim("elapsed/outside", {"total_s": rank.elapsed.total, **beside})]
