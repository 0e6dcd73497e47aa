"""What the processes of one arm prove beside the plain ones: faster, slower, the same, wrong, or failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec.structs import replace

from findwall.model.arms import Around
from findwall.model.catalogue import WORTH_IT
from findwall.model.claims import Range
from findwall.model.switches.typed_switches import own_name
from findwall.trial.arms_in_turn import OTHERS_BUSY, Outcome
from findwall.trial.equivalence import Losses, compare_losses
from findwall.trial.statistics import Comparison, prove, verdict
from findwall.units import format_ms, format_share

Verdict = Literal["faster", "slower", "no-difference", "incorrect", "failed"]


# All chosen by hand.
OTHER_CLOCK = 0.02  # share by which clocks may differ between arms
# Times faster: where the interval holds as much, nobody knows yet that it is no difference.
COULD_BE = 1.0 + WORTH_IT
FAR_APART = 2.0  # times: an interval whose ends are further apart says how unlike the processes were
NOT_SETTLED = "not settled"
MORE_TIME = "--repeat gives it more processes, --budget the time for them"
INTERRUPTED = "it was interrupted"


class Attempt(msgspec.Struct, frozen=True):
    """Some fixes made together, and what came of it."""

    fixes: tuple[str, ...]
    verdict: Verdict
    step_ms: float | None = None
    faster: Comparison | None = None  # than the plain job
    losses: Losses = Losses("not-checked")
    peak_memory: int | None = None
    seconds: float = 0.0  # that its processes took
    why: str = ""  # of a failure, or of losses that differ; else what was seen to have taken effect
    predicted: Range = msgspec.field(default_factory=Range)
    starts_s: float = 0.0  # that its first process took longer than plain ones: compiling, most of all
    base: str = ""  # the fixes that the verdict compares it with; none: the plain job
    on_base: Comparison | None = None  # how many times faster than those

    @property
    def gain(self) -> float:
        """Times faster than the plain job; nothing where that is not known."""
        return self.faster.ratio if self.faster is not None else 0.0

    @property
    def plain_ms(self) -> float | None:
        """The step of the plain job that it was compared with."""
        return (
            self.step_ms * self.faster.ratio if self.step_ms is not None and self.faster is not None else None
        )


class Plain(msgspec.Struct, frozen=True):
    """The job as it is, as far as it was measured."""

    runs_ms: list[float]
    losses: list[list[float]]  # of the processes that start from the seed of all arms
    other_seed: list[list[float]]
    seconds: float = 0.0  # that one process takes, from start to end
    around: list[Around] = []
    draws: bool = False  # its dataset draws at random
    order: list[list[int]] = []  # of the samples, as each loader asks for them
    unseen: bool = False  # nobody saw whether its dataset draws: its workers are not forked


def same_order(order: list[list[int]], arm: Outcome) -> bool:
    """Whether each process of an arm asked for the samples that a plain one asked for, as far as both did."""
    others = [one.order for one in arm.reports]
    pairs = [pair for other in others for pair in zip(order, other, strict=False)]
    known = bool(pairs) and all(one and two for one, two in pairs)
    return known and all(a == b for one, two in pairs for a, b in zip(one, two, strict=False))


def judge(
    fixes: tuple[str, ...], arm: Outcome, plain: Plain, exact: bool, floor: float, ask: str = MORE_TIME
) -> Attempt:
    """`exact`: the fixes promise the same numbers. `floor`: the noise of two plain arms. `ask`: what would
    settle what is open."""
    spent = sum(one.seconds for one in arm.samples)
    trouble = trouble_of(fixes, arm)
    if trouble:
        return Attempt(fixes, "failed", seconds=spent, why=trouble)
    passed_on = read_back(arm)
    losses = compare_losses(plain.losses, plain.other_seed, losses_of(arm), exact)
    if not any(one.losses for one in arm.reports):
        losses = replace(losses, of="outputs")
    if passed_on and losses.likeness == "differs":  # by what was read: that says nothing of the fixes
        return Attempt(fixes, "failed", seconds=spent, why=passed_on)
    if passed_on:
        losses = Losses("not-checked", of=losses.of)
    faster = prove(plain.runs_ms, arm.runs_ms)
    if losses.needs_repeat:
        why = f"its {losses.of} are others than those of the one plain process, and a repeat may differ too"
        return Attempt(fixes, "failed", losses=losses, seconds=spent, why=f"{why}: {ask}")
    found: Verdict = verdict(faster, floor) if losses.likeness != "differs" else "incorrect"
    if faster is None and found != "incorrect":
        found = "failed"
    seen = "; ".join(one.seen for told in arm.reports[:1] for one in told.applied.fixes.values())
    open_still = unsettled(found, faster, plain.runs_ms, arm.runs_ms, floor, ask)
    seen = "; ".join(filter(None, (passed_on, open_still, seen, disturbed(plain.around, around_of(arm)))))
    longer = max((one.seconds for one in arm.samples[:1]), default=0.0) - plain.seconds
    return Attempt(
        fixes,
        found,
        arm.median_ms,
        faster,
        losses,
        peak_of(arm),
        spent,
        seen,
        starts_s=max(longer, 0.0),
    )


def unsettled(
    found: Verdict,
    faster: Comparison | None,
    plain_ms: Sequence[float],
    runs_ms: Sequence[float],
    floor: float,
    ask: str,
) -> str:
    """What is not known yet, and what to do about it, in words; mostly nothing."""
    if found == "failed":
        return too_few(runs_ms, "it", ask)
    if found != "no-difference" or faster is None:
        return ""
    if faster.low > 1 or faster.high < 1:
        noise = f"no more than the {format_share(floor)} that two plain arms may differ by"
        return f"{NOT_SETTLED}, {noise}: {ask}" if faster.ratio > COULD_BE else noise
    if faster.high <= COULD_BE:
        return ""
    if faster.high > FAR_APART * faster.low:  # an end of such an interval is no promise
        plain, own = (f"{format_ms(min(runs))} to {format_ms(max(runs))}" for runs in (plain_ms, runs_ms))
        return f"{NOT_SETTLED}, plain processes took {plain} per step and its own {own}: {ask}"
    return f"{NOT_SETTLED}, it may be up to {faster.high:.2f} times faster: {ask}"


def too_few(runs_ms: Sequence[float], what: str, ask: str) -> str:
    told = f"{len(runs_ms)} process{'es' if len(runs_ms) != 1 else ''} of {what} told a step"
    return f"{NOT_SETTLED}, as {told}, too few to prove anything: {ask}"


def bare(name: str) -> str:
    """Without the number that it may be made with, or the switch: loader-workers=4, tf32 by --tf32."""
    return own_name(name).partition("=")[0]


def peak_of(arm: Outcome) -> int | None:
    return max((one.peak_memory for one in arm.reports if one.peak_memory is not None), default=None)


def around_of(arm: Outcome) -> list[Around]:
    return [one.report.around for one in arm.counted if one.report is not None]


def disturbed(plain: Sequence[Around], arm: Sequence[Around]) -> str:
    """What else than the fixes may have changed the step, in words; mostly nothing."""
    clocks = [[one.clock_mhz for one in many if one.clock_mhz] for many in (plain, arm)]
    said = []
    if all(clocks):
        ratio = median(clocks[1]) / median(clocks[0])
        if abs(ratio - 1.0) > OTHER_CLOCK:
            how = "higher" if ratio > 1.0 else "lower"
            said.append(f"the clocks were {100 * abs(ratio - 1.0):.0f} % {how} than the plain job's")
    neighbours = max((one.neighbours or 0 for one in (*plain, *arm)), default=0)
    if neighbours:
        said.append(f"{neighbours} other process{'es' if neighbours > 1 else ''} used the device")
    busy = max((one.others_busy or 0.0 for one in (*plain, *arm)), default=0.0)
    if busy > OTHERS_BUSY:
        said.append(f"other processes kept up to {busy:.1f} cores busy")
    return "; ".join(said)


def read_back(arm: Outcome) -> str:
    """Which file its processes had from earlier ones, in words; mostly none."""
    paths = [path for one in arm.reports for path in one.read_back]
    if not paths:
        return ""
    told = f"its processes read {paths[0]}, which earlier processes of the trial wrote"
    if Path(paths[0]).is_absolute():
        return f"{told}: let the job write it in the folder it runs in, and give --sandbox-dir DIR"
    return f"{told}: --sandbox-dir DIR runs each in a folder of its own"


def losses_of(arm: Outcome) -> list[list[float]]:
    """Or, of a job without any, what its models gave."""
    return [one.losses or one.outputs for one in arm.reports]


def trouble_of(fixes: tuple[str, ...], arm: Outcome) -> str:
    """Why nothing can be said of the fixes: no process went through, or one of them did nothing."""
    if not arm.runs_ms:
        first = arm.failures[0] if arm.failures else None
        return f"{first.trouble}: {first.what}" if first else "no process was run"
    name = did_nothing(fixes, arm)
    told = [one.applied.fixes.get(bare(name)) for one in arm.reports] if name else []
    why = next((one.trouble for one in told if one is not None and one.trouble), "")
    return f"{name} did not take effect{f': {why}' if why else ''}" if name else ""


def did_nothing(fixes: tuple[str, ...], arm: Outcome) -> str:
    """The first of the fixes that processes of an arm went through without; empty if there is none."""
    for name in fixes:
        told = [one.applied.fixes.get(bare(name)) for one in arm.reports]
        if not all(one is not None and one.took_effect for one in told):
            return name
    return ""
