"""What step times and hardware counters support without a trace.

Three walls can be told apart by counters alone: a tensor pipe that is busy, a memory that is busy, and
multiprocessors that are idle. Which cause inside a wall often cannot: then it is said between which.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from findwall.attribute.counted import FP32_CEILING, TENSOR_CEILING
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEAR, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.machine import Counters
from findwall.model.run import Rank, StepTimes
from findwall.units import format_ms, format_share

# Percent of the time, as NVML's GPM reports it.
TENSOR_AT_ROOF, FP32_AT_ROOF = 100 * TENSOR_CEILING, 100 * FP32_CEILING
# Times fp32's rate: TF32 on the tensor cores of every GPU that has these counters (Hopper and later), by
# their data sheets.
TENSOR_CORES_RATIO = 7.0


class CounterVerdict(msgspec.Struct, frozen=True):
    """`cause` None: only `between` can be said."""

    cause: str | None
    between: tuple[str, ...]
    sentence: str
    busy: float | None  # share of the step with work on the multiprocessors; None unknown
    carried: float = 0.0  # share of the step that the verdict's pipe accounts for


class Wait(msgspec.Struct, frozen=True):
    """A wait of the host that was seen: its share of the time, and the sentence about it."""

    cause: str
    share: float  # the least it is
    sentence: str


class Whole(msgspec.Struct, frozen=True):
    """What the shares are of: a step that was timed, or the time in which a job was watched."""

    step_s: float | None = None
    shown_by: str = "a trace"  # what would show what is unknown

    def __str__(self) -> str:
        return "the time" if self.step_s is None else f"the {format_ms(self.step_s * 1e3)} step"

    def part(self, share: float) -> str:
        """So much of it, in words."""
        return format_share(share) if self.step_s is None else format_ms(share * self.step_s * 1e3)


def judge_counters(rank: Rank) -> CounterVerdict:
    """The verdict that timing and counters support."""
    timed = rank.step_times
    if timed is None:
        return CounterVerdict(
            None, (), "Neither a trace nor step times were measured, so no wall can be named.", None
        )
    whole = Whole(timed.mean)
    waits = _timed_waits(timed, whole)
    return judge(rank, whole, waits) or CounterVerdict(None, (), _no_counters(rank), None)


def judge(
    rank: Rank, whole: Whole, waits: Sequence[Wait], knows_loader: bool = True
) -> CounterVerdict | None:
    """The verdict on a job whose host waits so, the wait that comes first being asked first; None where there
    are neither counters nor a wait that explains what the device does.

    `knows_loader`: somebody looked whether it waits for the loader.
    """
    gpm = counters_of(rank)
    share = None if gpm.sm is None else gpm.sm / 100.0
    idle = 1.0 if share is None else 1.0 - share
    waiting = _waiting(rank, whole, waits, idle, share is not None or rank.device_kind == "cpu")
    if waiting is not None:
        return _weighed(CounterVerdict(*waiting, share), whole, waits)
    if gpm.sm is None:
        return None
    found = CounterVerdict(*_by_pipes(whole, gpm, knows_loader), share)
    reached = {
        "at-the-roof": (gpm.tensor or 0.0) / TENSOR_AT_ROOF,
        "fast-path-off": (gpm.fp32 or 0.0) / FP32_AT_ROOF,
    }
    return _weighed(replace(found, carried=min(reached.get(found.cause or "", 0.0), 1.0)), whole, waits)


def counters_of(rank: Rank) -> Counters:
    """A GPU beside a job on cores has counters too, of somebody else's work."""
    return (rank.telemetry.gpm if rank.device_kind == "gpu" else None) or Counters()


def _timed_waits(timed: StepTimes, whole: Whole) -> list[Wait]:
    """What the hooks timed."""
    found = []
    for cause, seconds, what in (
        ("loader-starved", timed.loader_s, "waits for the next batch. Give the DataLoader more workers"),
        ("gc-pause", timed.gc_s, "waits for the garbage collector. Call gc.freeze() after set-up"),
    ):
        if seconds is not None and timed.mean > 0:
            share = seconds / timed.mean
            found.append(Wait(cause, share, f"For {whole.part(share)} of {whole} the job {what}."))
    return found


def _weighed(verdict: CounterVerdict, whole: Whole, waits: Sequence[Wait]) -> CounterVerdict:
    """The verdict, if what is unknown without a trace could not be a better one."""
    if verdict.cause is None:
        return verdict
    parts = known_shares(waits, verdict)
    unknown = 1.0 - sum(parts.values())
    gain = parts.get(verdict.cause, 0.0) * recoverable_share(verdict.cause)
    if verdict.cause in ROOFS and unknown <= SMALL_PART:
        return verdict
    if verdict.cause not in ROOFS and unknown <= gain:
        return verdict
    text = f"{verdict.sentence} Only {whole.shown_by} would show where the other {whole.part(unknown)} goes."
    return replace(verdict, cause=None, between=(verdict.cause,), sentence=text)


def recoverable_share(cause: str) -> float:
    """What of a cause's time could come back: all of a wait, nothing of a roof."""
    if cause == "fast-path-off":
        return 1.0 - 1.0 / TENSOR_CORES_RATIO
    return 0.0 if cause in ROOFS else 1.0


def _waiting(
    rank: Rank, whole: Whole, waits: Sequence[Wait], idle: float, known: bool
) -> tuple[str | None, tuple[str, ...], str] | None:
    """A wait that was seen and that explains most of the idle time, if there is much of that."""
    if not known or idle < FAIR_PART:
        return None
    for wait in waits:
        if wait.share >= MAJORITY_SHARE * idle:
            return wait.cause, (), wait.sentence
    if rank.compiles:
        return (
            None,
            ("recompilation", "launch-bound", "host-work"),
            f"For about {format_share(idle)} of {whole} the device waits, and "
            f"torch.compile compiles again while the job runs; {whole.shown_by} would show how much of it "
            "that is.",
        )
    return None


def _by_pipes(whole: Whole, gpm: Counters, knows_loader: bool) -> tuple[str | None, tuple[str, ...], str]:
    sm, tensor, dram, fp32 = (value or 0.0 for value in (gpm.sm, gpm.tensor, gpm.dram, gpm.fp32))
    cause: str | None = None
    between: tuple[str, ...] = ()
    if sm < 100 * NEAR:
        between = ("launch-bound", "host-work", "host-sync", *(() if knows_loader else ("loader-starved",)))
        idle = format_share(1 - sm / 100)
        text = f"For about {idle} of {whole} the device waits{', and not for the loader' * knows_loader}"
    elif tensor >= NEAR * TENSOR_AT_ROOF:
        cause = "at-the-roof"
        text = f"The tensor cores are busy {tensor:.0f} % of {whole}: they run at the roof"
    elif fp32 >= NEAR * FP32_AT_ROOF and tensor < 100 * WORTH_IT:
        cause = "fast-path-off"
        text = (
            f"The fp32 pipe is busy {fp32:.0f} % of {whole}, the tensor cores {tensor:.0f} %. Move "
            "the matmuls to them (torch.set_float32_matmul_precision('high'), or bf16 autocast)"
        )
    elif dram >= 100 * MAJORITY_SHARE:
        between = ("unfused-pointwise", "memory-roof", "unfused-attention")
        text = f"Memory is busy {dram:.0f} % of {whole}: the wall is bandwidth"
    else:
        # fp32 convolutions keep their pipe less busy than matmuls do.
        slow = ("slow-kernels", "fast-path-off") if tensor < 100 * WORTH_IT else ("slow-kernels",)
        between = (*slow, "misaligned-shapes", "unfused-pointwise")
        text = f"No pipe is busy (SM {sm:.0f} %, tensor {tensor:.0f} %, DRAM {dram:.0f} % of {whole})"
    end = "." if cause is not None else f"; {whole.shown_by} would show why."
    return cause, between, text + end


def _no_counters(rank: Rank) -> str:
    if rank.device_kind == "cpu":
        return (
            "Without a trace only waiting shows on a CPU, and this job does not wait for its loader: let "
            "findwall "
            "trace a few steps."
        )
    return (
        "Step times alone name no wall, and this GPU gave no counters (GPM needs Hopper or later): let "
        "findwall trace a few steps."
    )


def known_parts(timed: StepTimes, verdict: CounterVerdict) -> dict[str, float]:
    """Seconds of the step by cause: known to be waiting, never more than the device idles, and carried."""
    shares = known_shares(_timed_waits(timed, Whole(timed.mean)), verdict)
    return {cause: share * timed.mean for cause, share in shares.items()}


def known_shares(waits: Sequence[Wait], verdict: CounterVerdict) -> dict[str, float]:
    """The same as shares of the whole."""
    room = 1.0 if verdict.busy is None else 1.0 - verdict.busy
    parts: dict[str, float] = {}
    for wait in waits:
        if wait.share and (verdict.cause == wait.cause or verdict.busy is not None):
            parts[wait.cause] = min(wait.share, room)
            room -= parts[wait.cause]
    if verdict.cause and verdict.carried > 0:
        parts[verdict.cause] = min(verdict.carried, 1.0 - sum(parts.values()))
    return parts
