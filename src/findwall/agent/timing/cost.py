"""What findwall costs a step: its hooks' own time, and steps with the hooks off beside steps with them on."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, sqrt
from statistics import mean, median
from typing import Any, NamedTuple

FEWEST_PAIRS = 6  # below that no 95 % interval exists
NORMAL_95 = 1.96  # standard errors on either side of a mean that hold it 95 times in 100
MINUTES_APART = 0.05  # by so much steps differ from minute to minute without anybody's doing


def block_length(step_ns: float) -> int:
    """Steps in one block of hooks on or off: long enough to be timed, short enough that drift cancels."""
    return max(2, min(100, ceil(25_000_000 / max(step_ns, 1.0))))


class Shadow(NamedTuple):
    """Blocks with the hooks on beside blocks with them off."""

    pairs: Sequence[tuple[float, float]]  # nanoseconds of a block with them on, and off
    denser: float  # times as often as usual everything was done with them on
    counting_ns: float  # our own clock's figure of what is left to do in a block with them off
    lean_ns: float  # and of counting the steps between measured ones, in a block

    def interval(self) -> tuple[float, float, float] | None:
        """Low, middle, high of what measuring costs, as a share of a step."""
        found = shadow_interval(self.pairs)
        if found is None:
            return None
        block = median(off for _, off in self.pairs)
        low, middle, high = (
            (end + self.counting_ns / block) / self.denser + self.lean_ns / block for end in found
        )
        return low, middle, high


def shadow_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Low, middle, high of the relative cost, from (on, off) pairs of block means.

    Hodges-Lehmann with Wilcoxon's signed-rank interval: a pause in one block does not move it.
    """
    shares = [on / off - 1 for on, off in pairs if off > 0]
    count = len(shares)
    if count < FEWEST_PAIRS:
        return None
    walsh = sorted((shares[i] + shares[j]) / 2 for i in range(count) for j in range(i, count))
    total = count * (count + 1) // 2
    rank = floor(total / 2 - NORMAL_95 * sqrt(count * (count + 1) * (2 * count + 1) / 24))
    rank = max(rank, 0)
    return walsh[rank], median(walsh), walsh[total - 1 - rank]


def hook_share(hook_ns: Sequence[int], step_ns: Sequence[int]) -> float | None:
    """The hooks' own time as a share of a step; the device may not have told the time of every step."""
    if not hook_ns or not sum(step_ns):
        return None
    return mean(hook_ns) / mean(step_ns)


def sentence(cost: dict[str, Any]) -> str:
    """The figures for a person."""
    hooks, shadow, trace = cost.get("hook_share"), cost.get("shadow_share"), cost.get("trace")
    parts = []
    if hooks is not None:
        parts.append(f"its hooks took {_percent(hooks)} of a step")
    if shadow is not None:
        parts.append(_compared(shadow["low"], shadow["mid"], shadow["high"]))
    elif hooks is not None:
        parts.append("too few similar steps followed to compare with steps without them")
    if trace is not None:
        parts.append(f"the trace window held the job up for {trace['pause_s']:.1f} s once")
        after = cost.get("step_after_trace")
        if after is not None and after > 1 + MINUTES_APART and trace.get("profiler_stays"):
            parts.append(
                f"steps are {_percent(after - 1)} longer after it than before, because the profiler stays in "
                "the process"
            )
    if (held_up := cost.get("observed_s")) is not None:
        parts.append(f"steps whose tensors were followed took {held_up:.1f} s longer")
    return f"What findwall cost: {'; '.join(parts)}." if parts else ""


def _compared(low: float, mid: float, high: float) -> str:
    ends = f"({_percent(low)} to {_percent(high)} at 95 %)"
    if low < 0 < high:
        return f"steps with and without them differ by no more than the noise {ends}"
    return (
        f"steps with them were {_percent(abs(mid))} {'longer' if mid >= 0 else 'shorter'} than without {ends}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def describe(
    hook_ns: Sequence[int],
    step_ns: Sequence[int],
    shadow: Shadow | None = None,
    after_ns: Sequence[int] = (),
) -> dict[str, Any]:
    """The figures every report carries. None: could not be measured."""
    interval = None if shadow is None else shadow.interval()
    before, after = (median(step_ns) if step_ns else 0), (median(after_ns) if after_ns else 0)
    return {
        "hook_share": hook_share(hook_ns, step_ns),
        "shadow_share": None
        if interval is None
        else dict(zip(("low", "mid", "high"), interval, strict=True)),
        "shadow_pairs": 0 if shadow is None else len(shadow.pairs),
        "shadow_denser": None if shadow is None else shadow.denser,
        "step_after_trace": after / before if before and after else None,
    }
