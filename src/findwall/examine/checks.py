"""The table of checks: no sentence contradicts a figure.

Every figure, verdict, fix and refusal of a document passes here before anybody sees it. What fails is not
shown: a note says why, and `quality.checks_failed` counts it. A check that fails on a real job is a fault
elsewhere, to be mended there; this is the net below it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable

import msgspec

from findwall.attribute.budget import NEAR_ROOF_SHARE
from findwall.attribute.workmodel.floors import TOO_SMALL_NS
from findwall.examine.circumstances import Circumstances
from findwall.fixes import takes_out
from findwall.model.catalogue import MAJORITY_SHARE, ROOFS, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import (
    NO_GAIN,
    Diagnosis,
    Memory,
    Mfu,
    NotWorthIt,
    Prescription,
    Step,
    TimelineSummary,
    Wall,
)
from findwall.units import NS_PER_MS, format_ms, format_share
from findwall.walls.verdict import BUSY_FOR_LAUNCHES, ROOF_UNKNOWN_SHARE

# All chosen by hand, not calibrated.
SUM_TOLERANCE = 1e-3  # of the step: rounding of a budget's rows
ROUNDING = 1.001  # times a figure: the same one, rounded
SAID_TOLERANCE = 1.05  # times what a sentence promises: a fix that saves more says something else

ZERO_TIMES = re.compile(r"(?<![\d.,])0 times\b|\bNothing of\b")
GRAPH_ADVICE = re.compile(r"[Cc]apture [^.;]*graph|torch\.cuda\.graph|make_graphed_callables|reduce-overhead")
WORKERS = re.compile(r"num_workers=(\d+)")
HOST_WORK, LOADER = "host-work", "loader-starved"
MEMORY_CLAIM = re.compile(
    r"(?:come|comes|copied|copies|are) (?:already )?(?:come )?from (?:pinned|pageable)|already pinned"
)
PROMISE = re.compile(r"saves up to ([\d.]+) (us|ms|s)\b")
MS_PER_UNIT = {"us": 1e-3, "ms": 1.0, "s": 1e3}
# What only one maker's devices have, and what a job on cores has no use for.
FOREIGN = {
    "nvidia": re.compile(r"rocm-smi|amd-smi|MIOpen|hipBLAS|\bRCCL\b|Infinity Fabric"),
    "amd": re.compile(r"nvidia-smi|cuDNN|cuBLAS|NVLink|Nsight"),
    "cpu": re.compile(
        r"CUDA graph|PYTORCH_CUDA|torch\.(?:cuda|backends\.cudnn)|(?:nvidia|rocm)-smi|tensor cores|pin_memory"
    ),
}
# What looks at a running job find where a cause is its wall.
SEEN_AS = {
    "loader-starved": {"loader"},
    "host-work": {"python", "reads"},
    "host-sync": {"reads"},
}
# Advice in a verdict's sentence, and the fix that it speaks of.
SPOKEN_FIXES = {
    "cuda-graphs": re.compile(r"CUDA graph"),
    "torch-compile": re.compile(r"[Cc]ompile (?:it|the model)\b|[Ll]et torch\.compile"),
    "channels-last": re.compile(r"channels_last"),
    "pin-memory": re.compile(r"pin_memory=True"),
}


class Claim(msgspec.Struct, frozen=True):
    """One thing that is said, beside what it must agree with."""

    text: str
    document: Diagnosis
    job: Circumstances
    prescription: Prescription | None = None
    refusal: NotWorthIt | None = None

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


Check = Callable[[Claim], str]  # what contradicts what; empty where nothing does
FigureCheck = Callable[[Diagnosis], str]


# -- figures: the document alone ------------------------------------------------------------------------


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


# -- what is said: verdicts, fixes and refusals ---------------------------------------------------------


def cause_takes_time(claim: Claim) -> str:
    """The cause of a verdict is in the budget."""
    return "" if claim.spent(claim.cause) > 0 else f"{claim.cause} takes nothing of the step"


def known_outweighs_unknown(claim: Claim) -> str:
    """What is unknown could be no better cause than the one that is named."""
    unknown, gain = claim.spent(UNKNOWN), claim.gain(claim.cause)
    if claim.cause in ROOFS or unknown <= ROUNDING * gain:
        return ""
    return f"{claim.cause} gives back {format_ms(gain)}, {format_ms(unknown)} has no known cause"


def roof_is_known(claim: Claim) -> str:
    """That nothing is left is said only where nearly all of the step is known."""
    unknown = claim.spent(UNKNOWN)
    if claim.cause not in ROOFS or unknown <= ROOF_UNKNOWN_SHARE * claim.step * ROUNDING:
        return ""
    return f"{claim.cause}, and {format_share(unknown / claim.step)} of the step has no known cause"


def roof_is_near(claim: Claim) -> str:
    """What stands at a roof runs near it."""
    lowest = claim.job.lowest_at_roof
    if claim.cause not in ROOFS or lowest is None or lowest >= NEAR_ROOF_SHARE / ROUNDING:
        return ""
    return f"{claim.cause} holds kernels that reach {format_share(lowest)} of their ceiling"


def busy_device_waits_for_nobody(claim: Claim) -> str:
    """A device that is always busy is not bound by launches."""
    busy = next((one.value for one in claim.document.questions if one.id == "busy"), None)
    if claim.cause != "launch-bound" or busy is None or busy <= BUSY_FOR_LAUNCHES:
        return ""
    return f"launch-bound, and the device is busy {format_share(busy)} of the step"


def small_kernels_are_small(claim: Claim) -> str:
    """Kernels too small to matter last microseconds."""
    longest = claim.job.longest_small_ms
    if claim.cause != "launch-bound" or longest <= TOO_SMALL_NS / NS_PER_MS:
        return ""
    return f"launch-bound, with a kernel of {format_ms(longest)} taken for too small"


def was_seen_while_watched(claim: Claim) -> str:
    """A wait that looks at a running job name is one that some of them found."""
    watch, wanted = claim.document.watch, SEEN_AS.get(claim.cause)
    if watch is None or wanted is None or any(wanted & row.doing.keys() for row in watch.ranks):
        return ""
    return f"{claim.cause}, and no look found the job doing that"


def promise_covers_the_fixes(claim: Claim) -> str:
    """What the verdict says can be saved is no less than what a fix of that cause alone is said to save."""
    found = PROMISE.search(claim.text)
    if found is None:
        return ""
    promised = float(found[1]) * MS_PER_UNIT[found[2]]
    for one in claim.document.prescriptions:
        saved = claim.step - one.step_ms.low if one.step_ms.low is not None else 0.0
        if (
            one.moves == [claim.cause]
            and not takes_out(one.fixes)
            and saved > SAID_TOLERANCE * promised + 1e-3
        ):
            fixes, saved_text = " and ".join(one.fixes), format_ms(saved)
            return f"the verdict promises {format_ms(promised)}, {fixes} alone {saved_text}"
    return ""


def verdict_advises_nothing_refused(claim: Claim) -> str:
    """A sentence does not advise what is refused below it."""
    refused = {one.fixes[0] for one in claim.document.not_worth_it if one.at_most_speedup == NO_GAIN}
    for fix, words in SPOKEN_FIXES.items():
        if fix in refused and words.search(claim.text):
            return f"the verdict advises {fix}, which is refused"
    return ""


def says_something(claim: Claim) -> str:
    """No verdict on nothing, nothing that happens 0 times."""
    found = ZERO_TIMES.search(claim.text)
    return f"it says “{found[0]}”" if found else ""


def graph_is_not_captured_twice(claim: Claim) -> str:
    """Who replays a graph already is not told to capture one."""
    found = GRAPH_ADVICE.search(claim.text)
    share = claim.job.replayed_share
    if found is None or share <= MAJORITY_SHARE:
        return ""
    return f"“{found[0]}”, and {format_share(share)} of the kernels are replayed from a graph"


def advice_is_for_this_device(claim: Claim) -> str:
    """No tool of another maker; no GPU's advice for a job on cores."""
    own = "cpu" if claim.job.device_kind == "cpu" else claim.job.vendor
    found = FOREIGN[own].search(claim.text) if own in FOREIGN else None
    return f"“{found[0]}” is not for this device ({own})" if found else ""


def workers_fit_the_cores(claim: Claim) -> str:
    """No more workers than there are cores to run them, or to wait on."""
    found, cores = WORKERS.search(claim.text), claim.job.cores
    if found is None or cores is None or int(found[1]) <= cores * claim.job.workers_a_core:
        return ""
    return f"{found[1]} workers on {cores} cores"


def memory_is_named(claim: Claim) -> str:
    """Pinned or pageable is said only of copies whose names say it."""
    found = MEMORY_CLAIM.search(claim.text)
    if found is None or claim.job.copies_tell_memory:
        return ""
    return f"“{found[0]}”, and the copies' names do not say"


def step_is_shorter_but_not_beyond_the_spec(claim: Claim) -> str:
    """At best a step takes what its products take by the device's data sheet, and less than now. Where a fix
    takes products out, nobody knows by the sheet what is left."""
    low = claim.prescription.step_ms.low if claim.prescription is not None else None
    if low is None:
        return ""
    assert claim.prescription is not None
    least_ms = 0.0 if takes_out(claim.prescription.fixes) else claim.job.least_ms
    if not 0 < low < claim.step * ROUNDING or low < least_ms / ROUNDING:
        least = format_ms(claim.job.least_ms)
        return f"the step at best {low:.4g} ms, now {format_ms(claim.step)}, by the data sheet {least}"
    return ""


def verdict_keeps_to_the_spec(claim: Claim) -> str:
    """Without a cause the step still takes what its products take by the device's data sheet."""
    left = claim.step - claim.gain(claim.cause)
    if left * ROUNDING + 1e-6 >= claim.job.least_ms:
        return ""
    return f"{format_ms(left)} would be left of the step, {format_ms(claim.job.least_ms)} by the data sheet"


def refused_is_not_advised(claim: Claim) -> str:
    """Nothing is advised and refused at once."""
    if claim.refusal is None:
        return ""
    advised = [one.fixes for one in claim.document.prescriptions]
    return "advised and refused at once" if claim.refusal.fixes in advised else ""


def clocks_were_sampled(claim: Claim) -> str:
    """Clocks are called fine only where somebody read them."""
    if claim.refusal is None or claim.refusal.fixes != ["raise-clocks"] or claim.job.clocks_sampled:
        return ""
    return "nobody read the clocks"


FIGURES: dict[FigureCheck, Callable[[Diagnosis], Diagnosis]] = {
    budget_sums_to_the_step: lambda one: msgspec.structs.replace(one, budget=[]),
    no_cause_gives_back_more_than_it_takes: lambda one: msgspec.structs.replace(one, budget=[]),
    no_phase_is_negative: lambda one: msgspec.structs.replace(one, phases=[], modules=[]),
    shares_are_shares: lambda one: _without_shares(one),
    step_is_a_time: lambda one: msgspec.structs.replace(one, step=_no_step(one.step), budget=[], phases=[]),
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
        one, memory=Memory(None, None), throughput=None, mfu=Mfu(None, None, None, None, one.mfu.source)
    ),
}
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


# -- the net ---------------------------------------------------------------------------------------------


def checked(document: Diagnosis, job: Circumstances) -> Diagnosis:
    """The document with what contradicts its figures taken out, noted and counted."""
    failed: list[str] = []
    notes: list[str] = []
    sound = True
    for figure, withdraw in {**FIGURES, **BESIDE}.items():
        complaint = figure(document)
        if complaint:
            document, sound = withdraw(document), sound and figure in BESIDE
            failed.append(_name(figure))
            notes.append(f"Some figures are left out because they cannot be right: {complaint}.")
    document = msgspec.structs.replace(
        document,
        prescriptions=[
            one
            for one in document.prescriptions
            if _passes(Claim(one.how, document, job, prescription=one), FIX, one.fixes, failed, notes)
        ],
    )
    document = msgspec.structs.replace(
        document,
        not_worth_it=[
            one
            for one in document.not_worth_it
            if _passes(Claim(one.why, document, job, refusal=one), REFUSAL, one.fixes, failed, notes)
        ],
    )
    document = _check_verdict(document, job, sound, failed, notes)
    if not failed:
        return document
    counted = dict(sorted(Counter(failed).items()))
    quality = msgspec.structs.replace(document.quality, checks_failed=counted)
    return msgspec.structs.replace(document, quality=quality, notes=[*document.notes, *notes])


def _passes(
    claim: Claim, checks: tuple[Check, ...], fixes: list[str], failed: list[str], notes: list[str]
) -> bool:
    for check in checks:
        complaint = check(claim)
        if complaint:
            failed.append(_name(check))
            notes.append(f"{' and '.join(fixes)}: not shown, because it contradicts a figure ({complaint}).")
            return False
    return True


def _check_verdict(
    document: Diagnosis, job: Circumstances, sound: bool, failed: list[str], notes: list[str]
) -> Diagnosis:
    if document.wall.cause is None:
        return _without_trifles(document)
    claim = Claim(document.wall.sentence, document, job)
    complaints = {check: check(claim) for check in (VERDICT if document.watch is None else WATCHED)}
    wrong = [check for check, complaint in complaints.items() if complaint]
    if sound and not wrong:
        return document
    failed += [_name(check) for check in wrong]
    why = "; ".join(complaints[check] for check in wrong) or "its figures cannot be right"
    notes.append(f"No wall is named, because the verdict contradicts a figure: {why}.")
    sentence = (
        f"The figures of this step contradict each other ({why}), so no wall is named. Record a few other "
        "steps, and please report this as a bug in findwall."
    )
    return msgspec.structs.replace(
        document,
        wall=Wall(None, None, sentence, None, []),
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


def _no_step(step: Step) -> Step:
    return msgspec.structs.replace(step, **dict.fromkeys(_STEP_TIMES))


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


def _name(check: Check | FigureCheck) -> str:
    return check.__name__.replace("_", "-")
