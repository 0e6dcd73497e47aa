"""What step times and hardware counters support without a trace.

Three walls can be told apart by counters alone: a tensor pipe that is busy, a memory that is busy, and
multiprocessors that are idle. Which cause inside a wall often cannot: then it is said between which.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from findwall.attribute.hardware_counters import FP32_CEILING, TENSOR_CEILING
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEAR, ROOFS, SMALL_PART, WORTH_IT
from findwall.model.claims import Claim, Figure
from findwall.model.machine import Counters
from findwall.model.run import Rank, StepTimes

# Percent of the time, as NVML's GPM reports it.
TENSOR_AT_ROOF, FP32_AT_ROOF = 100 * TENSOR_CEILING, 100 * FP32_CEILING
# Times fp32's rate: TF32 on the tensor cores of every GPU that has these counters (Hopper and later), by
# their data sheets.
TENSOR_CORES_RATIO = 7.0


class CounterVerdict(msgspec.Struct, frozen=True):
    """`cause` None: only `between` can be said."""

    cause: str | None
    between: tuple[str, ...]
    claim: Claim
    busy: float | None  # share of the step with work on the multiprocessors; None unknown
    carried: float = 0.0  # share of the step that the verdict's pipe accounts for


class Wait(msgspec.Struct, frozen=True):
    """A wait of the host that was seen: its share of the time, and what is said about it."""

    cause: str
    share: float  # the least it is
    claim: Claim


class Whole(msgspec.Struct, frozen=True):
    """What the shares are of: a step that was timed, or the time in which a job was watched."""

    step_s: float | None = None
    watched: bool = False  # then `findwall run` would show what is unknown, else a trace

    def figures(self, share: float | None = None) -> dict[str, Figure]:
        """Of what a share is, and how long that is where a step was timed."""
        step = None if self.step_s is None else self.step_s * 1e3
        part = None if share is None or step is None else share * step
        return {"step_ms": step, "part_ms": part, "part_share": share, "watched": self.watched}


def judge_counters(rank: Rank) -> CounterVerdict:
    """The verdict that timing and counters support."""
    timed = rank.step_times
    if timed is None:
        return CounterVerdict(None, (), Claim("counters/no-steps"), None)
    whole = Whole(timed.mean)
    waits = _timed_waits(timed, whole)
    return judge(rank, whole, waits) or CounterVerdict(
        None, (), Claim("counters/none", {"on_cores": rank.device_kind == "cpu"}), None
    )


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
    for cause, seconds in (("loader-starved", timed.loader_s), ("gc-pause", timed.gc_s)):
        if seconds is not None and timed.mean > 0:
            share = seconds / timed.mean
            found.append(Wait(cause, share, Claim(f"timed/{cause}", whole.figures(share))))
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
    rest = Claim("counters/where-else", whole.figures(unknown))
    both = Claim("sentences", parts=[verdict.claim, rest])
    return replace(verdict, cause=None, between=(verdict.cause,), claim=both)


def recoverable_share(cause: str) -> float:
    """What of a cause's time could come back: all of a wait, nothing of a roof."""
    if cause == "fast-path-off":
        return 1.0 - 1.0 / TENSOR_CORES_RATIO
    return 0.0 if cause in ROOFS else 1.0


def _waiting(
    rank: Rank, whole: Whole, waits: Sequence[Wait], idle: float, known: bool
) -> tuple[str | None, tuple[str, ...], Claim] | None:
    """A wait that was seen and that explains most of the idle time, if there is much of that."""
    if not known or idle < FAIR_PART:
        return None
    for wait in waits:
        if wait.share >= MAJORITY_SHARE * idle:
            return wait.cause, (), wait.claim
    if rank.compiles:
        compiles = Claim("counters/compiles", {**whole.figures(), "idle_share": idle})
        return None, ("recompilation", "launch-bound", "host-work"), compiles
    return None


def _by_pipes(whole: Whole, gpm: Counters, knows_loader: bool) -> tuple[str | None, tuple[str, ...], Claim]:
    sm, tensor, dram, fp32 = (value or 0.0 for value in (gpm.sm, gpm.tensor, gpm.dram, gpm.fp32))
    figures: dict[str, Figure] = {**whole.figures(), "sm": sm, "tensor": tensor, "dram": dram, "fp32": fp32}
    if sm < 100 * NEAR:
        between = ("launch-bound", "host-work", "host-sync", *(() if knows_loader else ("loader-starved",)))
        idle = {"idle_share": 1 - sm / 100, "not_loader": knows_loader}
        return None, between, Claim("counters/idle", {**figures, **idle})
    if tensor >= NEAR * TENSOR_AT_ROOF:
        return "at-the-roof", (), Claim("counters/tensor-busy", figures)
    if fp32 >= NEAR * FP32_AT_ROOF and tensor < 100 * WORTH_IT:
        return "fast-path-off", (), Claim("counters/fp32-busy", figures)
    if dram >= 100 * MAJORITY_SHARE:
        between = ("unfused-pointwise", "memory-roof", "unfused-attention")
        return None, between, Claim("counters/memory-busy", figures)
    # fp32 convolutions keep their pipe less busy than matmuls do on an H200.
    slow = ("slow-kernels", "fast-path-off") if tensor < 100 * WORTH_IT else ("slow-kernels",)
    between = (*slow, "misaligned-shapes", "unfused-pointwise")
    return None, between, Claim("counters/no-pipe", figures)


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
