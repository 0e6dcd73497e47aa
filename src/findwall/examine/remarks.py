"""What was missing, what was estimated, what was refused: the document's notes."""

from __future__ import annotations

import numpy as np

from findwall.attribute.conditions import held_down
from findwall.attribute.facts import Facts
from findwall.attribute.figures import listed
from findwall.attribute.job import captured_share
from findwall.attribute.probed import far_off
from findwall.examine.kinds import about_elapsed, about_kinds
from findwall.model.catalogue import MENTION_SHARE, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.events import NSYS
from findwall.model.run import Rank, Run
from findwall.structure.left_out import CAPTURE, COMPILING, CONTEXT, CUT_AWAY, LOADING, MEMORY, START_UP
from findwall.structure.steps import step_numbers
from findwall.units import format_ms, format_share, ms

OPS_NAMED = 3  # in one note
RANKS_NAMED = 8  # in one note
STEPS_NAMED = 3  # in one note
WHAT_ONCE = {
    LOADING: "first calls that load code",
    CONTEXT: "calls that set up the driver or a library",
    MEMORY: "the first requests for driver memory",
    CAPTURE: "graph capture",
    COMPILING: "compiling for the first time",
}


def gather_notes(facts: Facts) -> list[str]:
    """Every remark once, the ones that change how to read the verdict first."""
    measured = facts.reading.source == "measured"
    notes = [
        *_about_step(facts),
        *(about_kinds(facts.rank, facts) if measured else []),
        *about_elapsed(facts.rank),
        *_about_left_out(facts),
        *facts.reading.notes,
        *facts.whole.steps.notes,
        *_about_window(facts),
        *_about_recording(facts),
        *_about_captures(facts),
        *_about_links(facts),
        *_about_ranks(facts),
        *_about_model(facts),
        *_about_probes(facts),
        *_about_profiled(facts),
        *facts.timeline.quality.notes,
        *notes_of_ranks(facts.run, facts.rank),
    ]
    return list(dict.fromkeys(notes))


def _about_probes(facts: Facts) -> list[str]:
    off = far_off(facts)
    if not off:
        return []
    return [
        f"{listed(sorted(set(off))[:OPS_NAMED])} took more than twice or less than half as long when probed "
        "as in the job: predictions take the probe's own time. If the device was busy, probe again "
        "(`findwall probe --refresh`)."
    ]


def _about_profiled(facts: Facts) -> list[str]:
    """What of a profile by Nsight Compute was used."""
    found = facts.profiled
    if found is None:
        return []
    used = (
        f"{found.rows:,} of {found.kernels:,} kernels in these steps have their bytes from Nsight Compute's "
        "counters instead of their shapes"
    )
    if not found.unmatched:
        return [f"{used}."]
    return [
        f"{used}; {found.unmatched:,} of {found.launches:,} profiled launches match no kernel for sure (by "
        "name, grid and order) and are not used."
    ]


def notes_of_ranks(run: Run, speaker: Rank) -> list[str]:
    """What was noted of the job, of the rank that speaks, and of the others under their number."""
    notes = [*run.notes, *speaker.notes]
    for rank in run.ranks:
        if rank is speaker:
            continue
        named = f"rank {rank.number}"
        notes += [note if named in note else f"{named}: {note}" for note in rank.notes if note not in notes]
        held = held_down(rank)
        if held is not None:
            notes.append(f"{held}: ranks that wait for each other are all as slow as that one.")
    return notes


def _about_step(facts: Facts) -> list[str]:
    reading = facts.reading
    if reading.source != "estimated":
        return _about_left_over(facts)
    low, high = format_ms(ms(reading.short.step)), format_ms(ms(reading.long.step))
    return [
        f"The step is estimated ({low} to {high}): profiling stretched it to "
        f"{format_ms(ms(float(facts.whole.steps.lengths.mean())))}. Pass --step-ms for a true budget."
    ]


def only_start_up(facts: Facts) -> str:
    """The verdict on a trace that holds little but what happens once, up to what to do about it."""
    once = facts.whole.left_out.of(*START_UP).length
    recorded = once + int(facts.whole.steps.lengths.sum())
    return (
        f"{format_ms(ms(once))} of the {format_ms(ms(recorded))} in the trace goes to {_what_once(facts)}. "
        "It was recorded during start-up, which says nothing about the steps that follow: "
    )


def _what_once(facts: Facts) -> str:
    """The kinds of start-up, the one that takes longest first, and its longest call."""
    once = facts.whole.left_out.of(*START_UP)
    took = {reason: once.of(reason).length for reason in START_UP}
    kinds = [WHAT_ONCE[reason] for reason in sorted(took, key=lambda one: -took[one]) if took[reason] > 0]
    call = facts.whole.timeline.name_of(int(once.row[int(np.argmax(once.end - once.start))]))
    return f"{' and '.join(kinds)} (the longest is {call})"


def _about_left_out(facts: Facts) -> list[str]:
    found = facts.whole.left_out
    notes = []
    cut, once = found.of(CUT_AWAY).length, found.of(*START_UP).length
    if cut > 0:
        notes.append(
            f"{format_ms(ms(cut))} at the beginning is left out of the step: the kernels there waited for "
            "device "
            "work that this file does not hold (it is a slice of a longer trace)."
        )
    if once > MENTION_SHARE * facts.step:
        notes.append(
            f"{format_ms(ms(once))} is left out of the step because it happens only once: "
            f"{_what_once(facts)}."
        )
    return notes


def _about_left_over(facts: Facts) -> list[str]:
    left = facts.reading.likely.left_over
    if left < WORTH_IT * facts.step:
        return []
    return [
        f"The step is {format_ms(ms(left))} longer than the traced steps explain, even on a slow host, so "
        "that time has no known cause. Trace other steps, or more of them."
    ]


def _about_window(facts: Facts) -> list[str]:
    kept, steps = facts.steps.count, facts.whole.steps.count
    found = [*_about_cold_steps(facts), *_about_evaluations(facts)]
    if kept < steps:
        found.append(f"The budget covers {kept} typical steps out of {steps}; step times cover all of them.")
    return found


def _about_cold_steps(facts: Facts) -> list[str]:
    cold = facts.whole.cold_ms
    if not cold:
        return []
    which = "The first step is" if len(cold) == 1 else f"The first {len(cold)} steps are"
    took = listed([format_ms(one) for one in cold[:STEPS_NAMED]])
    return [f"{which} left out as warm-up: {took}, longer than all that follow by more than those differ."]


def _about_evaluations(facts: Facts) -> list[str]:
    recorded = facts.rank.timeline
    numbers = set() if recorded is None or not facts.rank.evaluated else set(step_numbers(recorded).tolist())
    held = len(numbers & facts.rank.evaluated)
    if not held:
        return []
    return [
        f"{held} of {len(numbers)} traced steps held an evaluation: the budget is of a run of "
        f"{facts.whole.steps.count} without one."
    ]


def _about_recording(facts: Facts) -> list[str]:
    notes, header = [], facts.timeline.header
    if not header.shapes:
        notes.append(
            f"The trace has no shapes ({header.shapes_option}), so FLOPs and bytes are known only from "
            "kernel names."
        )
    if not facts.ceilings.known and not header.devices and header.recorder == NSYS:
        notes.append(
            "The export does not name the GPU. Pass --gpu NAME to compare kernels with its ceilings."
        )
    elif not facts.ceilings.known:
        device = facts.ceilings.device or "the device's name is missing"
        notes.append(f"No ceilings are known for this device ({device}): `findwall ceilings` measures them.")
    if facts.ceilings.doubt:
        notes.insert(0, about_doubt(facts.ceilings.doubt))
    devices = {int(device) for device in facts.timeline.events.device[facts.kernels.row].tolist()}
    if len(devices) > 1:
        notes.append(
            f"The budget covers device {facts.steps.device}, the busiest of {len(devices)} in this process."
        )
    return notes


def about_doubt(doubt: str) -> str:
    reason = f"{doubt[:1].lower()}{doubt[1:]}" if doubt.startswith("Other") else doubt
    return (
        f"The ceilings may be too low, and the job farther from them than it says here: {reason}. "
        "Measure them again when the machine is quiet: `findwall ceilings --refresh`."
    )


def _about_captures(facts: Facts) -> list[str]:
    share = captured_share(facts) if facts.rank.captures else None
    if share is None:
        return []
    return [
        f"The graph's recorded {'capture gives' if len(facts.rank.captures) == 1 else 'captures give'} ops "
        "and "
        f"shapes to {format_share(share)} of the time in replayed kernels, matched in order."
    ]


def _about_links(facts: Facts) -> list[str]:
    ambiguous = facts.whole.links.ambiguous
    if not ambiguous:
        return []
    return [
        f"Correlation ids repeat in this trace (merged files?), so {ambiguous:,} device events were matched "
        "to "
        "their launches by process and order."
    ]


def _about_ranks(facts: Facts) -> list[str]:
    """What the collectives of all ranks took, over the whole of what was compared."""
    found = facts.ranks
    if found is None or found.waited is None:
        return []
    each = zip(found.ranks, found.waits.sum(axis=0).tolist(), strict=True)
    waits = ", ".join(f"rank {rank} {format_ms(ms(float(wait)))}" for rank, wait in list(each)[:RANKS_NAMED])
    return [
        f"{format_ms(found.transfer_ms)} of the {found.matched} collectives that all ranks have is transfer; "
        f"waiting for others takes {waits}."
    ]


def _about_model(facts: Facts) -> list[str]:
    notes = []
    work = ~facts.kernels.orphan & ~facts.kernels.communication  # as the quality counts it
    total = float(facts.kernels.duration[work].sum())
    above = float(facts.kernels.duration[work & facts.kernels.above_spec].sum())
    if total and above > MENTION_SHARE * total:
        notes.append(
            f"{format_share(above / total)} of the kernel time would run above 105 % of the spec: its data "
            "was in cache, or its work is overestimated."
        )
    if facts.counted is not None:
        notes.append(
            f"{format_share(facts.counted.share)} of the device's time goes to kernels with unknown shapes: "
            f"{facts.counted.words}, over the timed steps."
        )
    if facts.share(UNKNOWN) > WORTH_IT:
        notes.append(f"{format_share(facts.share(UNKNOWN))} of the step has no known cause.")
    return notes
