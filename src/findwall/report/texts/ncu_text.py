"""The table of kernels that Nsight Compute counted: a line of figures each, its sentence and what helps."""

from __future__ import annotations

import textwrap

from findwall.model.diagnosis import CountedKernel, Diagnosis
from findwall.report.printable_names import clean, fit, kernel_name
from findwall.units import format_ms, format_share

SHOWN = 8  # kernels; the document holds all
FIGURES = 56  # columns that the figures take, right of the name
NARROWEST_NAME = 12  # columns


def lines(diagnosis: Diagnosis, width: int) -> list[str]:
    """The longest kernels, at most `width` columns wide."""
    room = max(width - FIGURES, NARROWEST_NAME)
    heads = ("time", "DRAM", "SM", "tensor", "occup.", "waves", "bound")
    found = ["", f"  {'kernel':<{room - 2}}" + _columns(heads)]
    for one in diagnosis.counted[:SHOWN]:
        name = fit(kernel_name(one.name), room - 3)
        found.append(f"  {name:<{room - 2}}" + _columns(_figures(one)))
        told = " ".join(part for part in (clean(one.sentence), clean(one.helps), _beside(one)) if part)
        found += textwrap.wrap(told, max(width - 4, 20), initial_indent="    ", subsequent_indent="    ")
    left = len(diagnosis.counted) - SHOWN
    if left > 0:
        found.append(f"    … {left} more in --json")
    return found


def _columns(cells: tuple[str, ...]) -> str:
    widths = (9, 7, 7, 8, 7, 7, 11)
    return "".join(f"{cell:>{wide}}" for cell, wide in zip(cells, widths, strict=True))


def _figures(one: CountedKernel) -> tuple[str, ...]:
    shares = (one.dram_share, one.sm_share, one.tensor_share, one.occupancy)
    waves = "?" if one.waves is None else f"{one.waves:.3g}"
    return (
        format_ms(one.ms),
        *("?" if share is None else format_share(share) for share in shares),
        waves,
        one.bound,
    )


def _beside(one: CountedKernel) -> str:
    """What the sentence does not say: occupancy's limit, spills, conflicts, the first stall."""
    parts = []
    if one.limited_by and "at once" not in one.sentence and one.occupancy_limit is not None:
        limits = " and ".join(one.limited_by)
        parts.append(f"occupancy at most {format_share(one.occupancy_limit)} ({limits})")
    if one.wasted_sectors and "uncoalesced" not in one.sentence:
        parts.append(f"{format_share(one.wasted_sectors)} of sectors wasted")
    if one.spills:
        parts.append(f"{one.spills:,.0f} spill requests")
    if one.bank_conflicts:
        parts.append(f"bank conflicts {format_share(one.bank_conflicts)}")
    if one.stall:
        share = f" {format_share(one.stall_share)}" if one.stall_share is not None else ""
        parts.append(f"first stall {clean(one.stall)}{share}")
    return f"[{', '.join(parts)}]" if parts else ""
