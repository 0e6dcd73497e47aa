"""The table people know from `key_averages`: ops and kernels by device time, and beside each its floor."""

from __future__ import annotations

import msgspec

from findwall.model.diagnosis import Diagnosis, KernelRow
from findwall.report.phrases import whole
from findwall.report.printable_names import clean, fit, kernel_name
from findwall.report.stream import to_ascii
from findwall.units import format_share

FIGURES = 40  # columns that the figures take, right of the name
WHOLE_FROM = 100  # calls: from here on decimals say nothing
NARROWEST_NAME = 16  # columns
MOST_OF_A_NAME = 32  # columns for the op, where its kernel stands beside it


def to_text(diagnosis: Diagnosis, most: int, width: int = 80, unicode: bool = True) -> str:
    """The longest `most` of them, a line each; all figures are per step."""
    rows = sorted(diagnosis.kernels, key=lambda row: -row.ms)
    if not rows:
        return "This input holds no ops or kernels.\n"
    room = max(width - FIGURES, NARROWEST_NAME)
    busy = busy_ms(diagnosis)
    unit = "ms/step" if whole(diagnosis) == "step" else "ms"
    lines = [f"{'op or kernel':<{room}}{unit:>10}{'of busy':>9}{'calls':>9}{'floor ms':>12}"]
    lines += [_line(row, busy, room) for row in rows[:most]]
    if most > len(rows):
        lines.append(f"(only the longest {len(rows)} are kept)")
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if unicode else to_ascii(text)


class Figures(msgspec.Struct, frozen=True):
    """A row's figures as every view writes them."""

    ms: str
    share: str  # of the time the device is busy
    calls: str
    floor: str  # in milliseconds


def busy_ms(diagnosis: Diagnosis) -> float:
    """What shares of kernels are of. Where they overlap they take more together than the device is busy: no
    share may pass 1."""
    return max(diagnosis.step.busy_ms or 0.0, sum(row.ms for row in diagnosis.kernels))


def figures(row: KernelRow, busy: float) -> Figures:
    return Figures(
        ms=f"{row.ms:.3f}",
        share=format_share(row.ms / busy) if busy > 0 else "?",
        calls=calls(row.calls),
        floor="?" if row.floor_ms is None else f"{row.floor_ms:.3f}",
    )


def calls(count: float) -> str:
    """Calls per step; kernels that do not run in every step have fractions of one."""
    return f"{count:,.0f}" if count >= WHOLE_FROM else f"{count:.3g}"


def _line(row: KernelRow, busy: float, room: int) -> str:
    told = figures(row, busy)
    return f"{_name(row, room - 1):<{room}}{told.ms:>10}{told.share:>9}{told.calls:>9}{told.floor:>12}"


def _name(row: KernelRow, room: int) -> str:
    """The op a person wrote, and as much of its kernel as there is room for."""
    kernel = kernel_name(row.name).removeprefix("aten::")  # on a CPU the op is the kernel
    op = clean(row.op or "").removeprefix("aten::")
    if not op or op == kernel:
        return fit(kernel, room)
    left = room - len(fit(op, MOST_OF_A_NAME)) - 2
    if left < NARROWEST_NAME:
        return fit(op, room)
    return f"{fit(op, MOST_OF_A_NAME)}  {fit(kernel, left)}"
