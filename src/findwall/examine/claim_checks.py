"""Checks of what is said, verdicts, fixes and refusals, beside the figures of the same document."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from findwall.attribute.budget import NEAR_ROOF_SHARE
from findwall.attribute.workmodel.floors import TOO_SMALL_NS
from findwall.examine.circumstances import Circumstances
from findwall.examine.figure_checks import ROUNDING
from findwall.fixes import takes_out
from findwall.model.catalogue import MAJORITY_SHARE, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import (
    NO_GAIN,
    Diagnosis,
    NotWorthIt,
    Prescription,
)
from findwall.units import NS_PER_MS, format_ms, format_share

# All chosen by hand, not calibrated.

ZERO_TIMES = re.compile(r"(?<![\d.,])0 times\b|\bNothing of\b")
GRAPH_ADVICE = re.compile(r"[Cc]apture [^.;]*graph|torch\.cuda\.graph|make_graphed_callables|reduce-overhead")
WORKERS = re.compile(r"num_workers=(\d+)")
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
    if claim.cause not in ROOFS or unknown <= SMALL_PART * claim.step * ROUNDING:
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
    if claim.cause != "launch-bound" or busy is None or busy <= 1.0 - WORTH_IT:
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
        beyond = saved > (1 + WORTH_IT) * promised + 1e-3
        if one.moves == [claim.cause] and beyond and not takes_out(one.fixes):
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
    fix = claim.prescription
    if fix is None or (low := fix.step_ms.low) is None:
        return ""
    least_ms = 0.0 if takes_out(fix.fixes) else claim.job.least_ms
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
