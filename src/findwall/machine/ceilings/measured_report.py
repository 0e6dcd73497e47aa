"""The nouns of a measurement of ceilings: one rate, one point of the roofline, the whole report."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from findwall.model.machine import Ceilings

SCHEMA = "findwall-ceilings/1"


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ceiling: burst is the median of a few runs after warm-up, sustained the mean of a long one."""

    name: str  # "bf16", "copy", "h2d pinned", …
    unit: str  # "FLOP/s", "bytes/s" or "s"
    what: str = ""  # sizes and method, for people
    burst: float | None = None
    sustained: float | None = None
    spread: float | None = None  # (p90 - p10) / median of the samples
    samples: tuple[float, ...] = ()

    @property
    def figure(self) -> float | None:
        """What the verdict uses: sustained where it was measured."""
        return self.sustained if self.sustained is not None else self.burst


class CurvePoint(msgspec.Struct, frozen=True):
    """FLOP/s at one arithmetic intensity (FLOPs a byte of memory traffic that cannot be avoided)."""

    intensity: float
    flops: float
    bandwidth: float


class CeilingsReport(msgspec.Struct, frozen=True):
    """Everything one `findwall ceilings` measured. `ceilings` is what the analysis uses."""

    ceilings: Ceilings
    schema: str = SCHEMA
    driver: str = ""
    torch: str = ""
    created: str = ""  # ISO 8601, UTC
    seconds: float = 0.0
    matmul: tuple[Rate, ...] = ()
    memory: tuple[Rate, ...] = ()
    copies: tuple[Rate, ...] = ()
    launches: tuple[Rate, ...] = ()
    links: tuple[Rate, ...] = ()
    shapes: tuple[Rate, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    notes: tuple[str, ...] = ()
    others_busy: float | None = None  # cores that other processes kept busy meanwhile; None: not known


def rate_of(name: str, unit: str, amount: float, times_s: Sequence[float], what: str = "") -> Rate:
    """A burst rate from the seconds that each of a few runs of `amount` FLOPs or bytes took."""
    samples = sorted(amount / seconds for seconds in times_s if seconds > 0)
    if not samples:
        return Rate(name, unit, what)
    middle = statistics.median(samples)
    tenth = len(samples) // 10
    spread = (samples[-1 - tenth] - samples[tenth]) / middle
    return Rate(name, unit, what, burst=middle, spread=spread, samples=tuple(samples))


def cost_of(name: str, times_s: Sequence[float], what: str = "") -> Rate:
    """Seconds that one small thing takes: the median, with its samples."""
    ordered = tuple(sorted(times_s))
    return Rate(name, "s", what, burst=statistics.median(ordered), samples=ordered)


def with_sustained(rate: Rate, sustained: float) -> Rate:
    return msgspec.structs.replace(rate, sustained=sustained)
