"""The table people know from `key_averages`: ops and kernels by device time, and beside each its floor."""

from __future__ import annotations

from findwall.model.diagnosis import Diagnosis, KernelRow
from findwall.report.names import clean, fit, kernel_name
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
    # Kernels that overlap take more together than the device is busy: no share may pass 1.
    busy = max(diagnosis.step.busy_ms or 0.0, sum(row.ms for row in rows))
    lines = [f"{'op or kernel':<{room}}{'ms/step':>10}{'of busy':>9}{'calls':>9}{'floor ms':>12}"]
    lines += [_line(row, busy, room) for row in rows[:most]]
    if most > len(rows):
        lines.append(f"(only the longest {len(rows)} are kept)")
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if unicode else to_ascii(text)


def _line(row: KernelRow, busy_ms: float, room: int) -> str:
    share = format_share(row.ms / busy_ms) if busy_ms > 0 else "?"
    floor = "?" if row.floor_ms is None else f"{row.floor_ms:.3f}"
    calls = f"{row.calls:,.0f}" if row.calls >= WHOLE_FROM else f"{row.calls:.3g}"
    return f"{_name(row, room - 1):<{room}}{row.ms:>10.3f}{share:>9}{calls:>9}{floor:>12}"


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
