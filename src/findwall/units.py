"""Seconds, bytes and FLOPs inside; milliseconds and the like only at the edges, through these."""

from __future__ import annotations

NOT_ZERO_NS = 1e-9  # keeps a division defined where there is no time at all
NS_PER_US = 1_000
NS_PER_MS = 1_000_000
SECONDS_PER_HOUR = 3600.0
NS_PER_S = 1_000_000_000
MIB = 1024**2
GIB = 1024**3
GIGA = 1e9
MS_PER_S = 1e3
ABOUT_ONCE = (0.95, 1.05)  # "1 call"; below it the fraction is shown
LEAST_SHOWN_MS = 0.0005  # half a microsecond: less rounds to nothing


def ms(nanoseconds: float) -> float:
    """Nanoseconds as milliseconds."""
    return float(nanoseconds) / NS_PER_MS


def format_ms(value: float | None) -> str:
    """A time in milliseconds with three significant figures, for people; seconds from ten of them on."""
    if value is None:
        return "unknown"
    magnitude = abs(value)
    if magnitude >= 10_000:
        return f"{value / 1000:.1f} s" if magnitude < 100_000 else f"{value / 1000:.0f} s"
    if magnitude >= 100:
        return f"{value:.0f} ms"
    if magnitude >= 10:
        return f"{value:.1f} ms"
    if magnitude >= 1:
        return f"{value:.2f} ms"
    return f"{value * 1000:.0f} us" if magnitude >= LEAST_SHOWN_MS else "0 ms"


def format_interval(low: float | None, high: float | None) -> str:
    """`38.0–45.2 ms`; one unit where both ends have it."""
    first, last = format_ms(low), format_ms(high)
    number, _, unit = first.rpartition(" ")
    return f"{number}–{last}" if unit and last.endswith(f" {unit}") else f"{first}–{last}"


def format_share(value: float | None) -> str:
    """A share of one as a percentage, for people."""
    if value is None:
        return "unknown"
    if 0 < value < 0.0005:
        return "< 0.1 %"  # little is not nothing
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def format_bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


PETA_FROM = 10  # of 10^15: 790 TFLOP/s reads better than 0.79 P


def format_rate(value: float, unit: str) -> str:
    """`unit`: "FLOP/s" or "bytes/s"."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= (PETA_FROM * size if prefix == "P" else size):
            return f"{value / size:.3g} {prefix}{'FLOP/s' if unit == 'FLOP/s' else 'B/s'}"
    return f"{value:.3g} {unit}"


def format_calls(calls: float) -> str:
    least, most = ABOUT_ONCE
    if calls < least:
        return f"{calls:.2g} calls per step"
    return "1 call" if calls < most else f"{calls:,.0f} calls"


def format_gib(value: float) -> str:
    """Memory in the largest binary unit of which there is one, for people."""
    if value >= 1:
        return f"{value:,.1f} GiB"
    for unit, times in (("MiB", 1024), ("KiB", 1024**2)):
        if value * times >= 1:
            return f"{value * times:.3g} {unit}" if value * times < 100 else f"{value * times:.0f} {unit}"
    return f"{value * GIB:.0f} B"


def in_short(numbers: list[int]) -> str:
    """ "1, 3-9, 11": runs of numbers by their ends."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
