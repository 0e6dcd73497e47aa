"""The net below a document: no sentence contradicts a figure.

Every figure, verdict, fix and refusal of a document passes here before anybody sees it. What fails is not
shown: a note says why, and `quality.checks_failed` counts it. A check that fails on a real job is a fault
elsewhere, to be mended there; this is the net below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from findwall.examine.circumstances import Circumstances
from findwall.examine.figure_checks import BESIDE, FIGURES, ROUNDING, FigureCheck
from findwall.fixes import takes_out
from findwall.model.catalogue import MAJORITY_SHARE, NEAR, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, Figure, plain
from findwall.model.diagnosis import NO_GAIN, Diagnosis, NotWorthIt, Prescription, Wall
from findwall.units import NS_PER_MS, format_ms, format_share
from findwall.work.work_facts import TOO_SMALL_NS

HOST_WORK, LOADER = "host-work", "loader-starved"


def checked(document: Diagnosis, job: Circumstances) -> Diagnosis:
    """The document with what contradicts its figures taken out, noted and counted."""
    failed: list[str] = []
    notes: list[Claim] = []
    sound = True
    for figure, withdraw in {**FIGURES, **BESIDE}.items():
        complaint = figure(document)
        if complaint:
            document, sound = withdraw(document), sound and figure in BESIDE
            failed.append(_name(figure))
            notes.append(Claim("check/left-out", parts=[plain(complaint)]))
    document = msgspec.structs.replace(
        document,
        prescriptions=[
            one
            for one in document.prescriptions
            if _passes(Said(one.claim, document, job, prescription=one), FIX, one.fixes, failed, notes)
        ],
    )
    document = msgspec.structs.replace(
        document,
        not_worth_it=[
            one
            for one in document.not_worth_it
            if _passes(Said(one.claim, document, job, refusal=one), REFUSAL, one.fixes, failed, notes)
        ],
    )
    document = _check_verdict(document, job, sound, failed, notes)
    if not failed:
        return document
    quality = msgspec.structs.replace(document.quality, checks_failed=dict(sorted(Counter(failed).items())))
    return msgspec.structs.replace(document, quality=quality, remarks=[*document.remarks, *notes])


def _passes(
    said: Said, checks: tuple[Check, ...], fixes: list[str], failed: list[str], notes: list[Claim]
) -> bool:
    for check in checks:
        complaint = check(said)
        if complaint:
            failed.append(_name(check))
            names: dict[str, Figure] = {f"fix{at}": fix for at, fix in enumerate(fixes, 1)}
            notes.append(Claim("check/not-shown", names, parts=[plain(complaint)]))
            return False
    return True


def _check_verdict(
    document: Diagnosis, job: Circumstances, sound: bool, failed: list[str], notes: list[Claim]
) -> Diagnosis:
    if document.wall.cause is None:
        return _without_trifles(document)
    said = Said(document.wall.claim, document, job)
    complaints = {check: check(said) for check in (VERDICT if document.watch is None else WATCHED)}
    wrong = [check for check, complaint in complaints.items() if complaint]
    if sound and not wrong:
        return document
    failed += [_name(check) for check in wrong]
    why = "; ".join(complaints[check] for check in wrong) or "its figures cannot be right"
    notes.append(Claim("check/no-wall", parts=[plain(why)]))
    undecided = Claim("undecided/contradiction", parts=[plain(why)])
    return msgspec.structs.replace(
        document,
        wall=Wall(None, None, between=[], claim=undecided, why_not="contradiction"),
        prescriptions=[],
        not_worth_it=[one for one in document.not_worth_it if one.at_most_speedup == NO_GAIN],
    )


def _without_trifles(document: Diagnosis) -> Diagnosis:
    """A verdict lies between causes that could be it: none that takes less than a wall in every reading."""
    step, wall = document.step.ms, document.wall
    if not wall.between or not step or not document.budget or document.timeline.span_ms is None:
        return document
    if document.machine.ceilings.get("source") == UNKNOWN:  # then what is slow hides among what is not
        return document
    most = {row.cause: max(row.ms, row.high_ms or 0.0) for row in document.budget}
    if HOST_WORK in most:  # a loader that nothing shows counts as host work
        most.setdefault(LOADER, most[HOST_WORK])
    least = WORTH_IT * min(step, document.step.low_ms or step)
    kept = [pair for pair in wall.between if most.get(pair[-1], 0.0) >= least]
    return msgspec.structs.replace(document, wall=msgspec.structs.replace(wall, between=kept))


def _name(check: Check | FigureCheck) -> str:
    return check.__name__.replace("_", "-")


# -- checks of what is said, verdicts, fixes and refusals, beside the figures of the same document --------


GRAPHS = {"cuda-graphs", "reduce-overhead"}  # fixes that capture a graph
# Fixes that only one maker's devices have, or that a job on cores has no use for.
NOT_FOR = {
    "amd": {"raise-clocks"},
    "cpu": {
        *GRAPHS,
        *("pin-memory", "non-blocking-copy", "device-side-preprocessing", "nccl-backend"),
        *("keep-cache", "expandable-segments", "cudnn-benchmark", "tf32", "fp16-autocast", "raise-clocks"),
    },
}
MAKERS = ("nvidia", "amd")
# Claims that say whether memory is pinned; those of copies have it as a figure, `memory`.
SAY_MEMORY = {
    *("pin-memory/already", "pin-memory/pin", "non-blocking-copy/pageable", "non-blocking-copy/no-wait"),
    "non-blocking-copy/do-not-wait",
}
# What looks at a running job find where a cause is its wall.
SEEN_AS = {
    "loader-starved": {"loader"},
    "host-work": {"python", "reads"},
    "host-sync": {"reads"},
}


class Said(msgspec.Struct, frozen=True):
    """One thing that is said, beside what it must agree with."""

    claim: Claim | None
    document: Diagnosis
    job: Circumstances
    prescription: Prescription | None = None
    refusal: NotWorthIt | None = None

    @property
    def fixes(self) -> set[str]:
        """What it advises."""
        one = self.prescription
        return set(one.fixes if one is not None else self.document.wall.advises)

    def figures(self, name: str) -> list[Figure]:
        """The figures of this name in all that is said."""
        inside = self.claim.all() if self.claim is not None else ()
        found = [one.figures[name] for one in inside if name in one.figures]
        if self.prescription is not None and name in self.prescription.parameters:
            found.append(self.prescription.parameters[name])
        return found

    @property
    def cause(self) -> str:
        return self.document.wall.cause or ""

    @property
    def step(self) -> float:
        return self.document.step.ms or 0.0

    def spent(self, cause: str) -> float:
        return sum(row.ms for row in self.document.budget if row.cause == cause)

    def gain(self, cause: str) -> float:
        return sum(row.recoverable_ms or 0.0 for row in self.document.budget if row.cause == cause)


Check = Callable[[Said], str]  # what contradicts what; empty where nothing does


def cause_takes_time(said: Said) -> str:
    """The cause of a verdict is in the budget."""
    return "" if said.spent(said.cause) > 0 else f"{said.cause} takes nothing of the step"


def known_outweighs_unknown(said: Said) -> str:
    """What is unknown could be no better cause than the one that is named."""
    unknown, gain = said.spent(UNKNOWN), said.gain(said.cause)
    if said.cause in ROOFS or unknown <= ROUNDING * gain:
        return ""
    return f"{said.cause} gives back {format_ms(gain)}, {format_ms(unknown)} has no known cause"


def roof_is_known(said: Said) -> str:
    """That nothing is left is said only where nearly all of the step is known."""
    unknown = said.spent(UNKNOWN)
    if said.cause not in ROOFS or unknown <= SMALL_PART * said.step * ROUNDING:
        return ""
    return f"{said.cause}, and {format_share(unknown / said.step)} of the step has no known cause"


def roof_is_near(said: Said) -> str:
    """What stands at a roof runs near it."""
    lowest = said.job.lowest_at_roof
    if said.cause not in ROOFS or lowest is None or lowest >= NEAR / ROUNDING:
        return ""
    return f"{said.cause} holds kernels that reach {format_share(lowest)} of their ceiling"


def busy_device_waits_for_nobody(said: Said) -> str:
    """A device that is always busy is not bound by launches."""
    busy = next((one.value for one in said.document.questions if one.id == "busy"), None)
    if said.cause != "launch-bound" or busy is None or busy <= 1.0 - WORTH_IT:
        return ""
    return f"launch-bound, and the device is busy {format_share(busy)} of the step"


def small_kernels_are_small(said: Said) -> str:
    """Kernels too small to matter last microseconds."""
    longest = said.job.longest_small_ms
    if said.cause != "launch-bound" or longest <= TOO_SMALL_NS / NS_PER_MS:
        return ""
    return f"launch-bound, with a kernel of {format_ms(longest)} taken for too small"


def was_seen_while_watched(said: Said) -> str:
    """A wait that looks at a running job name is one that some of them found."""
    watch, wanted = said.document.watch, SEEN_AS.get(said.cause)
    if watch is None or wanted is None or any(wanted & row.doing.keys() for row in watch.ranks):
        return ""
    return f"{said.cause}, and no look found the job doing that"


def promise_covers_the_fixes(said: Said) -> str:
    """What the verdict says can be saved is no less than what a fix of that cause alone is said to save."""
    promised = said.document.wall.saves_ms
    if promised is None:
        return ""
    for one in said.document.prescriptions:
        saved = said.step - one.step_ms.low if one.step_ms.low is not None else 0.0
        beyond = saved > (1 + WORTH_IT) * promised + 1e-3
        if one.moves == [said.cause] and beyond and not takes_out(one.fixes):
            fixes, saved_text = " and ".join(one.fixes), format_ms(saved)
            return f"the verdict promises {format_ms(promised)}, {fixes} alone {saved_text}"
    return ""


def verdict_advises_nothing_refused(said: Said) -> str:
    """A verdict does not advise what is refused below it."""
    refused = {one.fixes[0] for one in said.document.not_worth_it if one.at_most_speedup == NO_GAIN}
    both = sorted(refused & said.fixes)
    return f"the verdict advises {both[0]}, which is refused" if both else ""


def says_something(said: Said) -> str:
    """No verdict on nothing, nothing that happens 0 times."""
    for name in ("spent_ms", "times"):
        if any(isinstance(value, int | float) and value <= 0 for value in said.figures(name)):
            return f"{name} is nothing"
    return ""


def graph_is_not_captured_twice(said: Said) -> str:
    """Who replays a graph already is not told to capture one."""
    graphs, share = sorted(GRAPHS & said.fixes), said.job.replayed_share
    if not graphs or share <= MAJORITY_SHARE:
        return ""
    return f"{graphs[0]}, and {format_share(share)} of the kernels are replayed from a graph"


def advice_is_for_this_device(said: Said) -> str:
    """No tool of another maker; no GPU's advice for a job on cores."""
    own = "cpu" if said.job.device_kind == "cpu" else said.job.vendor
    foreign = sorted(NOT_FOR.get(own, set()) & said.fixes)
    if own:
        foreign += [str(maker) for maker in said.figures("maker") if maker in MAKERS and maker != own]
    return f"{foreign[0]} is not for this device ({own})" if foreign else ""


def workers_fit_the_cores(said: Said) -> str:
    """No more workers than there are cores to run them, or to wait on."""
    cores = said.job.cores
    workers = max((value for value in said.figures("workers") if isinstance(value, int | float)), default=0)
    if cores is None or workers <= cores * said.job.workers_a_core:
        return ""
    return f"{workers} workers on {cores} cores"


def memory_is_named(said: Said) -> str:
    """Pinned or pageable is said only of copies whose names say it."""
    inside = said.claim.all() if said.claim is not None else ()
    if said.job.copies_tell_memory or not (said.figures("memory") or SAY_MEMORY & {one.id for one in inside}):
        return ""
    return "the copies' names do not say whether memory is pinned"


def step_is_shorter_but_not_beyond_the_spec(said: Said) -> str:
    """At best a step takes what its products take by the device's data sheet, and less than now. Where a fix
    takes products out, nobody knows by the sheet what is left."""
    fix = said.prescription
    if fix is None or (low := fix.step_ms.low) is None:
        return ""
    least_ms = 0.0 if takes_out(fix.fixes) else said.job.least_ms
    if not 0 < low < said.step * ROUNDING or low < least_ms / ROUNDING:
        least = format_ms(said.job.least_ms)
        return f"the step at best {low:.4g} ms, now {format_ms(said.step)}, by the data sheet {least}"
    return ""


def verdict_keeps_to_the_spec(said: Said) -> str:
    """Without a cause the step still takes what its products take by the device's data sheet."""
    left = said.step - said.gain(said.cause)
    if left * ROUNDING + 1e-6 >= said.job.least_ms:
        return ""
    return f"{format_ms(left)} would be left of the step, {format_ms(said.job.least_ms)} by the data sheet"


def refused_is_not_advised(said: Said) -> str:
    """Nothing is advised and refused at once."""
    if said.refusal is None:
        return ""
    advised = [one.fixes for one in said.document.prescriptions]
    return "advised and refused at once" if said.refusal.fixes in advised else ""


def clocks_were_sampled(said: Said) -> str:
    """Clocks are called fine only where somebody read them."""
    if said.refusal is None or said.refusal.fixes != ["raise-clocks"] or said.job.clocks_sampled:
        return ""
    return "nobody read the clocks"


SAID: tuple[Check, ...] = (
    says_something,
    graph_is_not_captured_twice,
    advice_is_for_this_device,
    workers_fit_the_cores,
    memory_is_named,
)
VERDICT: tuple[Check, ...] = (
    cause_takes_time,
    known_outweighs_unknown,
    roof_is_known,
    roof_is_near,
    busy_device_waits_for_nobody,
    small_kernels_are_small,
    verdict_keeps_to_the_spec,
    promise_covers_the_fixes,
    verdict_advises_nothing_refused,
    *SAID,
)
# Of a job that ran already there is no step, and no budget of it.
WATCHED: tuple[Check, ...] = (was_seen_while_watched, busy_device_waits_for_nobody, *SAID)
FIX: tuple[Check, ...] = (step_is_shorter_but_not_beyond_the_spec, *SAID)
# A refusal may name what another device has: that is why it is refused.
REFUSAL: tuple[Check, ...] = (refused_is_not_advised, clocks_were_sampled, says_something, memory_is_named)
