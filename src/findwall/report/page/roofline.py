"""The roofline: how fast each kernel runs, against how fast this machine lets it.

Left of the ridge memory is the ceiling, right of it arithmetic. Both axes are logarithmic.
"""

from __future__ import annotations

from math import atan2, ceil, degrees, floor, log10, sqrt
from typing import Any

import msgspec

from findwall.model.diagnosis import Diagnosis, KernelRow
from findwall.model.machine import MATH_TYPES
from findwall.report.page.markup import Markup, element, joined, prose, section
from findwall.report.printable_names import clean, fit, kernel_name
from findwall.report.texts.top import calls
from findwall.units import format_bytes, format_ms

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 190, 28, 40
LARGEST_DOT, SMALLEST_DOT = 20.0, 3.0  # radius in pixels; area goes with time
LINE = 15.0  # pixels from one line of text to the next
MOST_TIME = 0.99  # of the kernels' time: the rest may lie at the frame's edge; chosen by hand
SAME_CEILING = 1.02  # times another: drawn as one line
BOUND_CLASS = {"compute": "wall-compute", "bandwidth": "wall-bandwidth", "latency": "wall-overhead"}
NOTE = (
    "Each dot is a kernel, as large as the time it takes. On the line it runs as fast as this machine can; "
    "below it, time is lost. Arrow keys go from dot to dot."
)


class Dot(msgspec.Struct, frozen=True):
    intensity: float  # FLOPs a byte
    rate: float  # FLOP/s
    ms: float
    kind: str  # the class that colours it
    told: str


class Frame(msgspec.Struct, frozen=True):
    """What lies where: decades of FLOPs a byte from left to right, of FLOP/s from bottom to top."""

    low_x: int
    high_x: int
    low_y: int
    high_y: int

    def x(self, intensity: float) -> float:
        share = (log10(intensity) - self.low_x) / (self.high_x - self.low_x)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, rate: float) -> float:
        share = (log10(rate) - self.low_y) / (self.high_y - self.low_y)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def place(self, intensity: float, rate: float) -> str:
        return f"{self.x(intensity):.1f} {self.y(rate):.1f}"


def roofline(diagnosis: Diagnosis) -> Markup:
    ceilings, memory = _ceilings(diagnosis.machine.ceilings)
    dots = [_dot(row) for row in diagnosis.kernels if row.flops and row.bytes and row.ms > 0]
    if not ceilings or memory is None:
        why = "The ceilings of this device are not known: `findwall ceilings` measures them in under 30 s."
        return section("roofline", "The roofline", element("p", prose(why)))
    if not dots:
        why = "Of no kernel both FLOPs and bytes are known (record_shapes=True lets the trace tell them)."
        return section("roofline", "The roofline", element("p", prose(why)))
    frame = _frame(dots, ceilings, memory)
    drawing = element(
        "svg",
        *_grid(frame),
        *_roofs(frame, ceilings, memory),
        _dots(frame, dots),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart roofline",
        role="group",
        aria_label="Roofline: FLOP/s over FLOPs per byte, a dot a kernel",
    )
    return section(
        "roofline",
        "The roofline",
        element("div", drawing, class_="scroll", tabindex=0, role="region", aria_label="Roofline chart"),
        element("p", _left_out(diagnosis), class_="note"),
        note=NOTE,
    )


def _ceilings(given: dict[str, Any]) -> tuple[list[tuple[str, float]], float | None]:
    """Achievable FLOP/s by name, the highest first, equal ones as one; and bytes a second."""
    found: list[tuple[str, float]] = []
    rates = {math: given.get(f"{math}_tflops") for math in MATH_TYPES}
    known = {
        math: float(rate) * 1e12 for math, rate in rates.items() if isinstance(rate, int | float) and rate > 0
    }
    for math, rate in sorted(known.items(), key=lambda item: -item[1]):
        if found and found[-1][1] < SAME_CEILING * rate:
            found[-1] = (f"{found[-1][0]}, {math}", found[-1][1])
        else:
            found.append((math, rate))
    memory = given.get("memory_gbps")
    return found, float(memory) * 1e9 if isinstance(memory, int | float) and memory > 0 else None


def rate_of(value: float) -> str:
    """FLOP/s for people."""
    return f"{count_of(value)}FLOP/s"


def count_of(value: float) -> str:
    """A large number for people, ready for a unit behind it: `9.62 T`, `51 `."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "


def _dot(row: KernelRow) -> Dot:
    flops, moved = row.flops or 0.0, row.bytes or 0.0
    rate = flops / (row.ms / 1e3)
    bound_by = f"{row.bound}-bound" if row.bound != "unknown" else "bound unknown"
    floor_said = f"floor {format_ms(row.floor_ms)}" if row.floor_ms is not None else "floor unknown"
    parts = [
        fit(kernel_name(row.name), 60),
        clean(row.op or ""),
        f"{row.class_}, {calls(row.calls)} calls, {format_ms(row.ms)} per step, {floor_said}, {bound_by}",
        f"{count_of(flops)}FLOPs, {format_bytes(moved)}: {flops / moved:.3g} FLOPs per byte, {rate_of(rate)}",
    ]
    told = "\n".join(part for part in parts if part)
    return Dot(flops / moved, rate, row.ms, BOUND_CLASS.get(row.bound, "wall-none"), told)


def _frame(dots: list[Dot], ceilings: list[tuple[str, float]], memory: float) -> Frame:
    """Whole decades that hold every dot and the ridges."""
    across = [dot.intensity for dot in _most(dots)] + [rate / memory for _, rate in ceilings]
    up = [dot.rate for dot in _most(dots)] + [rate for _, rate in ceilings]
    low_x, high_x = floor(log10(min(across))), ceil(log10(max(across) * 1.5))
    low_y, high_y = floor(log10(min(up))), ceil(log10(max(up) * 1.2))
    return Frame(max(low_x, high_x - 9), high_x, max(low_y, high_y - 9), high_y)


def _most(dots: list[Dot]) -> list[Dot]:
    """The dots that nearly all the time is in: the frame is theirs, the others lie at its edge."""
    left, found = MOST_TIME * sum(dot.ms for dot in dots), []
    for dot in sorted(dots, key=lambda dot: -dot.ms):
        if left > 0:
            found.append(dot)
        left -= dot.ms
    return found


def _grid(frame: Frame) -> list[Markup]:
    drawn: list[Markup] = []
    for power in range(frame.low_x, frame.high_x + 1):
        x = frame.x(10.0**power)
        drawn.append(element("line", x1=x, x2=x, y1=float(TOP), y2=float(HEIGHT - BOTTOM), class_="grid"))
        drawn.append(element("text", f"{10.0**power:g}", x=x, y=HEIGHT - BOTTOM + 16, class_="tick middle"))
    for power in range(frame.low_y, frame.high_y + 1):
        y = frame.y(10.0**power)
        drawn.append(element("line", x1=float(LEFT), x2=float(WIDTH - RIGHT), y1=y, y2=y, class_="grid"))
        drawn.append(element("text", count_of(10.0**power), x=LEFT - 6, y=y + 4, class_="tick end"))
    drawn.append(element("text", "FLOPs per byte", x=WIDTH - RIGHT, y=HEIGHT - 6, class_="axis end"))
    drawn.append(element("text", "FLOP/s", x=LEFT - 6, y=TOP - 12, class_="axis end"))
    return drawn


def _roofs(frame: Frame, ceilings: list[tuple[str, float]], memory: float) -> list[Markup]:
    """The slope of the memory, a level a number format, and the ridge where the two meet."""
    top = ceilings[0][1]
    left, lowest = 10.0**frame.low_x, 10.0**frame.low_y
    start = max(left, lowest / memory)
    drawn = [
        element(
            "path",
            d=f"M{frame.place(start, start * memory)}L{frame.place(top / memory, top)}",
            class_="roof",
        )
    ]
    label_y = 0.0
    for at, (name, rate) in enumerate(ceilings):
        ridge = rate / memory
        if rate < lowest or ridge < left:
            continue
        x, y = frame.x(ridge), frame.y(rate)
        drawn.append(
            element("path", d=f"M{x:.1f} {y:.1f}H{WIDTH - RIGHT}", class_="roof" if at == 0 else "roof lower")
        )
        said = f"ridge of {name}: {ridge:.3g} FLOPs per byte"
        drawn.append(
            element("g", element("title", said), element("circle", cx=x, cy=y, r=3.0, class_="ridge"))
        )
        label_y = max(y + 4, label_y + LINE)
        label = f"{name} {rate_of(rate)}"
        drawn.append(element("text", label, x=WIDTH - RIGHT + 8, y=label_y, class_="roof-name"))
        marked = f"ridge {ridge:.3g}" if at == 0 else f"{ridge:.3g}"
        drawn.append(element("text", marked, x=x - 8, y=y - 5, class_="tick end"))
    middle = start * (top / memory / start) ** 0.3  # below the ridges
    place = f"translate({frame.place(middle, middle * memory)}) rotate({_slope(frame, memory):.1f})"
    drawn.append(
        element("text", f"memory {memory / 1e12:.3g} TB/s", transform=place, class_="roof-name middle")
    )
    return drawn


def _slope(frame: Frame, memory: float) -> float:
    """Of the memory's ceiling, in degrees."""
    rise = frame.y(10.0 * memory) - frame.y(memory)
    return degrees(atan2(rise, frame.x(10.0) - frame.x(1.0)))


def _dots(frame: Frame, dots: list[Dot]) -> Markup:
    """Largest first, so that small ones lie on top and can be pointed at."""
    longest = max(dot.ms for dot in dots)
    drawn = []
    for at, dot in enumerate(sorted(dots, key=lambda dot: -dot.ms)):
        radius = max(LARGEST_DOT * sqrt(dot.ms / longest), SMALLEST_DOT)
        drawn.append(
            element(
                "g",
                element("title", dot.told.replace("\n", "; ")),
                element(
                    "circle",
                    cx=frame.x(min(max(dot.intensity, 10.0**frame.low_x), 10.0**frame.high_x)),
                    cy=frame.y(min(max(dot.rate, 10.0**frame.low_y), 10.0**frame.high_y)),
                    r=radius,
                ),
                class_=f"dot {dot.kind}",
                tabindex=0 if at == 0 else -1,
                role="img",
                aria_label=dot.told.replace("\n", "; "),
            )
        )
    return element("g", *drawn, class_="dots")


def _left_out(diagnosis: Diagnosis) -> Markup:
    """Kernels without a place in the plane: they compute nothing, or nobody knows what."""
    silent = [row for row in diagnosis.kernels if row.flops == 0 and row.bytes]
    blind = [row for row in diagnosis.kernels if row.flops is None or row.bytes is None]
    parts = []
    if silent:
        parts.append(f"{len(silent)} kernels only move bytes and have no place here ({_together(silent)}).")
    if blind:
        parts.append(f"Of {len(blind)} the work is not known ({_together(blind)}).")
    return joined(" ".join(parts))


def _together(rows: list[KernelRow]) -> str:
    return format_ms(sum(row.ms for row in rows))
