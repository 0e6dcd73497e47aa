"""Step times over the run: warm-up, the trace window, kinds of steps, outliers; the clocks below."""

from __future__ import annotations

from math import ceil, floor, log10

import msgspec

from findwall.model.diagnosis import Diagnosis
from findwall.model.kinds import USUAL
from findwall.model.machine import Telemetry
from findwall.model.series import Samples, Series, StepSeries
from findwall.report.page.markup import Markup, element, prose, section
from findwall.units import GIB, format_ms, format_share

WIDTH = 960
LEFT, RIGHT = 62, 16
STEPS_HEIGHT, LINE_HEIGHT, BOTTOM = 200, 54, 34
LINEAR_UP_TO = 5.0  # times the median step: with longer ones the axis goes by decades; chosen by hand
OUTLIER = 1.5  # times the median of its kind: drawn as one that stands out; chosen by hand
HARMLESS = (
    "gpu-idle",
    "application-clocks",
    "display-clocks",
    "sync-boost",
)  # reasons that hold nothing down
TELEMETRY = {
    "sm_clock_mhz": ("SM clock", "MHz"),
    "power_w": ("power", "W"),
    "temperature_c": ("temperature", "°C"),
    "memory_gib": ("memory in use", "GiB"),
    "tensor": ("tensor cores", "%"),
    "dram": ("DRAM", "%"),
}


class Axis(msgspec.Struct, frozen=True):
    """Steps from left to right."""

    first: float
    last: float

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / max(self.last - self.first, 1e-9) * (WIDTH - LEFT - RIGHT)


def step_times(diagnosis: Diagnosis, series: Series) -> Markup:
    steps = series.steps
    title = "Step times over the run"
    if steps is None:
        return section("steps", title, element("p", prose(series.why_no_steps)), _kinds(diagnosis))
    axis = _axis(steps)
    samples = steps.samples
    lines = [name for name in TELEMETRY if samples is not None and name in samples.columns]
    height = STEPS_HEIGHT + LINE_HEIGHT * len(lines) + BOTTOM
    drawn = [*_shades(steps, axis, height - BOTTOM), *_points(steps, axis)]
    for at, name in enumerate(lines):
        assert samples is not None
        drawn += _line(samples, name, axis, STEPS_HEIGHT + LINE_HEIGHT * at)
    drawn += _ticks(axis, height)
    chart = element(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH} {height}",
        class_="chart steps",
        role="img",
        aria_label=_said(steps),
    )
    return section(
        "steps",
        title,
        element("div", chart, class_="scroll", tabindex=0, role="region", aria_label="Step times chart"),
        _machine(steps.telemetry),
        _kinds(diagnosis),
        note=_said(steps),
    )


NO_SAMPLES = "No clocks or power were sampled in this run."


def _said(steps: StepSeries) -> str:
    timed = steps.timed
    parts = [f"{len(timed.ms)} steps timed without the profiler"]
    if steps.warm_up:
        why = f" ({steps.why_warm_up})" if steps.why_warm_up else ""
        parts.append(f"{steps.warm_up} before them were warm-up and are left out{why}")
    if steps.traced_from is not None:
        parts.append(f"{steps.traced} traced from step {steps.traced_from} on")
    if steps.slow_later:
        parts.append(f"{len(steps.slow_later)} later ones stood out")
    return "; ".join(parts) + "."


def _axis(steps: StepSeries) -> Axis:
    last = steps.timed.first + len(steps.timed.ms)
    if steps.traced_from is not None:
        last = max(last, steps.traced_from + steps.traced)
    return Axis(0.0 if steps.warm_up <= last / 2 else float(steps.timed.first - last // 20), float(last))


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


class Scale(msgspec.Struct, frozen=True):
    """Times from bottom to top; by decades where the longest step is many times the usual one."""

    low: float
    high: float
    by_decades: bool

    def y(self, ms: float) -> float:
        if self.by_decades:
            share = (log10(max(ms, self.low)) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = ms / self.high
        return 10.0 + (1.0 - share) * (STEPS_HEIGHT - 26.0)

    def ticks(self) -> list[float]:
        if not self.by_decades:
            return [0.0, self.high / 2, self.high]
        found, at = [], self.low
        while at <= self.high * 1.001:
            found.append(at)
            at *= 10.0
        return found


def _scale(steps: StepSeries) -> Scale:
    longest, shortest = max(steps.timed.ms), max(min(steps.timed.ms), 1e-6)
    if longest <= LINEAR_UP_TO * _median(steps.timed.ms):
        return Scale(0.0, max(longest, 1e-6) * 1.05, False)
    return Scale(10.0 ** floor(log10(shortest)), 10.0 ** ceil(log10(longest)), True)


def _shades(steps: StepSeries, axis: Axis, height: int) -> list[Markup]:
    drawn = []
    start, first = axis.x(axis.first), axis.x(steps.timed.first)
    if first - start > 1:
        drawn.append(
            element("rect", x=start, y=0.0, width=first - start, height=float(height), class_="warm-up")
        )
        if first - start > 60:
            drawn.append(element("text", "warm-up", x=start + 6, y=26, class_="tick"))
    if steps.traced_from is not None and steps.traced:
        x, end = axis.x(steps.traced_from), axis.x(steps.traced_from + steps.traced)
        drawn.append(
            element("rect", x=x, y=0.0, width=max(end - x, 3.0), height=float(height), class_="traced")
        )
        drawn.append(element("text", "traced", x=min(x, WIDTH - RIGHT - 2), y=26, class_="tick end"))
    return drawn


def _points(steps: StepSeries, axis: Axis) -> list[Markup]:
    scale = _scale(steps)
    names = steps.timed.kinds or [USUAL] * len(steps.timed.ms)
    middle = {
        name: _median([one for one, own in zip(steps.timed.ms, names, strict=True) if own == name])
        for name in set(names)
    }
    drawn = []
    for tick in scale.ticks():
        y = scale.y(tick)
        drawn.append(element("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=y, y2=y, class_="grid"))
        label = format_ms(tick) if tick else "0"
        drawn.append(element("text", label, x=LEFT - 6, y=y + 4, class_="tick end"))
    for at, (value, name) in enumerate(zip(steps.timed.ms, names, strict=True)):
        number = steps.timed.first + at
        stands_out = value > OUTLIER * middle[name]
        kind = f"step {'usual' if name == USUAL else 'other'}{' outlier' if stands_out else ''}"
        said = f"step {number}: {format_ms(value)}{'' if name == USUAL else f', {name}'}"
        place = {"cx": axis.x(number + 0.5), "cy": scale.y(value), "r": 3.2 if stands_out else 2.4}
        drawn.append(element("g", element("title", said), element("circle", **place), class_=kind))
    return drawn


def _line(samples: Samples, name: str, axis: Axis, y: int) -> list[Markup]:
    """One figure of the machine on the steps' axis, from its least to its most."""
    column = samples.columns[name]
    known = [(step, value) for step, value in zip(samples.step, column, strict=True) if value is not None]
    low, high = min(value for _, value in known), max(value for _, value in known)
    label, unit = TELEMETRY[name]
    span = max(high - low, 1e-9)

    def place(step: float, value: float) -> str:
        share = (value - low) / span if high > low else 0.5
        return f"{axis.x(step):.1f} {y + LINE_HEIGHT - 8 - share * (LINE_HEIGHT - 26):.1f}"

    path = "M" + "L".join(place(step, value) for step, value in known)
    ends = f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g}–{high:.4g}"
    drawn = [
        element("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=float(y), y2=float(y), class_="grid"),
        element("text", f"{label} {ends} {unit}", x=LEFT + 4, y=y + 13, class_="tick"),
        element("path", d=path, class_="telemetry"),
    ]
    held = samples.columns.get("held_down")
    if name == "sm_clock_mhz" and held is not None:
        for step, value in zip(samples.step, held, strict=True):
            if value:
                drawn.append(
                    element("circle", cx=axis.x(step), cy=float(y + LINE_HEIGHT - 4), r=2.5, class_="held")
                )
        share = sum(1 for value in held if value) / max(len(held), 1)
        if share:
            drawn.append(
                element(
                    "text",
                    f"held down in {format_share(share)} of the samples",
                    x=WIDTH - RIGHT,
                    y=y + 13,
                    class_="tick end",
                )
            )
    return drawn


def _ticks(axis: Axis, height: int) -> list[Markup]:
    span = max(axis.last - axis.first, 1.0)
    size = 10 ** floor(log10(span / 4))
    size = max(next(size * factor for factor in (1, 2, 5, 10) if span / (size * factor) <= 8), 1)
    drawn = []
    at = ceil(axis.first / size) * size
    while at <= axis.last:
        drawn.append(element("text", f"{at:.0f}", x=axis.x(at), y=height - BOTTOM + 14, class_="tick middle"))
        at += size
    drawn.append(element("text", "step", x=WIDTH - RIGHT, y=height - 4, class_="axis end"))
    return drawn


def _machine(told: Telemetry) -> Markup:
    """What all samples come to: a figure each, with its least and most."""
    cells = []
    clock = f" of {told.max_sm_clock_mhz}" if told.max_sm_clock_mhz else ""
    limit = f" of {told.power_limit_w:.0f}" if told.power_limit_w else ""
    for name, one, unit in (
        ("SM clock", told.sm_clock_mhz, f"{clock} MHz"),
        ("power", told.power_w, f"{limit} W"),
        ("temperature", told.temperature_c, " °C"),
    ):
        if one is not None:
            ends = f"{one.min:.0f}–{one.max:.0f}" if f"{one.min:.0f}" != f"{one.max:.0f}" else ""
            cells.append((name, f"{one.mean:.0f}{unit}", ends))
    held = {name: share for name, share in (told.throttle or {}).items() if name not in HARMLESS}
    for name, share in held.items():
        cells.append((f"held down by {name}", format_share(share), "of the samples"))
    if told.gpm is not None:
        for name, value in (("SM", told.gpm.sm), ("tensor cores", told.gpm.tensor), ("DRAM", told.gpm.dram)):
            if value is not None:
                cells.append((f"{name} busy", format_share(value / 100), ""))
    if told.memory_used is not None:
        cells.append(("memory in use", f"{told.memory_used / GIB:.1f} GiB", "by everyone"))
    if not cells:
        return element("p", NO_SAMPLES, class_="note")
    drawn = [
        element(
            "div",
            element("dt", name),
            element("dd", figure),
            element("dd", beside, class_="beside") if beside else None,
        )
        for name, figure, beside in cells
    ]
    return element("dl", *drawn, class_="telemetry-figures")


def _kinds(diagnosis: Diagnosis) -> Markup | None:
    """Steps of several kinds, as the document has them."""
    if len(diagnosis.kinds) < 2:
        return None
    rows = [
        element(
            "tr",
            element("td", kind.kind),
            element("td", format_share(kind.share_of_steps), class_="number"),
            element("td", format_ms(kind.ms), class_="number"),
            element("td", f"one in {kind.every}" if kind.every else ""),
            element("td", kind.what),
        )
        for kind in diagnosis.kinds
    ]
    heads = (
        ("kind of step", ""),
        ("of the steps", "number"),
        ("mean", "number"),
        ("comes", ""),
        ("does", ""),
    )
    head = element("tr", *(element("th", name, class_=of or None, scope="col") for name, of in heads))
    table = element("table", element("thead", head), element("tbody", *rows), class_="plain")
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Kinds of steps")
