"""A sweep: what it says, and a row for each batch size."""

from __future__ import annotations

import textwrap

from findwall.model.answers.sweep_answer import Sweep, SweepPoint
from findwall.report.printable_names import brief, clean
from findwall.units import format_gib, format_interval, format_ms

COLUMNS = ("batch", "samples/s", "step", "p10–p90", "peak", "predicted", "wall")
NONE = "–"
LONGEST_WHY = 100  # characters
ON_ROWS = {"knee": "knee", "smallest": "smallest within 5 %", "best": "best"}


def to_text(sweep: Sweep, width: int = 80) -> str:
    """The answer first, then what it rests on."""
    said = [line for text in sweep.says for line in textwrap.wrap(clean(text), width)]
    legend = "" if sweep.own is None else "> is the job's own size; "
    said_of = textwrap.fill(legend + figures(sweep), width, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([*said, "", *table(sweep), "", said_of]) + "\n"


def table(sweep: Sweep) -> list[str]:
    """With a mark at the job's own size, and a line for each size without figures."""
    rows = [row(sweep, point) for point in sweep.points]
    wide = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = [f"    {_line(COLUMNS, wide)}"]
    for point, cells in zip(sweep.points, rows, strict=True):
        own = ">" if point.batch_size == sweep.own else " "
        if point.outcome == "measured":
            lines.append(f"  {own} {_line(cells, wide)}".rstrip())
            lines += [f"      {clean(point.why)}"] if point.why else []
        else:
            lines.append(f"  {own} {cells[0]:>{wide[0]}}  {brief(point.why, LONGEST_WHY)}")
    return lines


def row(sweep: Sweep, point: SweepPoint) -> tuple[str, ...]:
    step = point.step_ms
    return (
        f"{point.batch_size:,}",
        NONE if point.samples_per_s is None else f"{point.samples_per_s:,.4g}",
        NONE if step.mid is None else format_ms(step.mid),
        NONE if step.mid is None else format_interval(step.low, step.high),
        NONE if point.peak_gib is None else format_gib(point.peak_gib),
        predicted(sweep, point),
        f"{point.wall} / {point.cause}" if point.wall else "unknown" if step.mid is not None else NONE,
    )


def predicted(sweep: Sweep, point: SweepPoint) -> str:
    """On the cores from what is needed to that with what the C library may keep; on a device from what it
    takes where libraries work in nothing to where they work in the most."""
    on_cores = sweep.memory_of == "resident"
    low = point.predicted_gib if on_cores else point.predicted_low_gib
    high = point.predicted_reserved_gib if on_cores else point.predicted_high_gib
    if low is None or high is None or format_gib(low) == format_gib(high):
        return NONE if point.predicted_gib is None else format_gib(point.predicted_gib)
    (first, unit), (last, other) = format_gib(low).split(), format_gib(high).split()
    return f"{first}–{last} {unit}" if unit == other else f"{first} {unit}–{last} {other}"


def marks(sweep: Sweep, point: SweepPoint) -> str:
    """What a size is: the knee, the smallest within 5 %, the best."""
    return ", ".join(said for name, said in ON_ROWS.items() if getattr(sweep, name) == point.batch_size)


def remark(sweep: Sweep, point: SweepPoint) -> str:
    """What a size is; why it has no figures, or what is to be said of them."""
    is_own = ["the job's own"] if point.batch_size == sweep.own else []
    known = [*is_own, *filter(None, [marks(sweep, point)])] if point.outcome == "measured" else []
    return ", ".join([*known, *filter(None, [clean(point.why)])])


def _line(cells: tuple[str, ...], wide: list[int]) -> str:
    return "  ".join(
        f"{cell:<{size}}" if at == len(wide) - 1 else f"{cell:>{size}}"
        for at, (cell, size) in enumerate(zip(cells, wide, strict=True))
    )


def figures(sweep: Sweep) -> str:
    """What the table's figures are of."""
    ranges = any(
        one.predicted_low_gib is not None and one.predicted_low_gib != one.predicted_high_gib
        for one in sweep.points
    )
    of = {
        "allocated": "allocated on the device"
        + ("; predicted: a range where libraries may work in buffers of another size" if ranges else ""),
        "resident": "resident memory of the job's processes; predicted: from what they need to what they "
        "take with freed memory that the C library keeps",
    }
    what = f"peak: {of[sweep.memory_of]}; " if sweep.memory_of in of else ""
    limit = f"{format_gib(sweep.limit_gib)} can be had; " if sweep.limit_gib is not None else ""
    return f"{what}{limit}rates are of one rank; the sweep took {sweep.seconds:.0f} s."


def to_markdown(sweep: Sweep) -> str:
    """The same rows; names are none but findwall's own."""
    head = ["batch", "samples/s", "step", "p10–p90", f"peak ({sweep.memory_of})", "predicted", "wall", ""]
    lines = [f"| {' | '.join(head)} |", f"|{'--:|' * 6}---|---|"]
    for point in sweep.points:
        note = remark(sweep, point).replace("|", "\\|")
        lines.append(f"| {' | '.join((*row(sweep, point), note))} |")
    return "\n".join(lines)
