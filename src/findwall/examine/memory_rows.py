"""What documents of memory have alike: the lines that hold a peak, and a change that makes it smaller."""

from __future__ import annotations

import numpy as np

from findwall.fixes import memory_patches, writes_patch
from findwall.memory.device_memory import DeviceMemoryFacts
from findwall.memory.memory_ladder import Rung
from findwall.model.answers.memory_answer import MemoryLineRow, MemoryRung
from findwall.model.claims import Claim, Figure, Range, known, lines
from findwall.model.measured_run import Rank
from findwall.model.memory_history import KINDS, CodeFrame, MemoryHistory, RecordedRank
from findwall.units import GIB

LINES_LISTED = 20


def of_snapshot(rank: Rank) -> MemoryHistory | None:
    return rank.memory if isinstance(rank, RecordedRank) else None


def line_rows(facts: DeviceMemoryFacts) -> list[MemoryLineRow]:
    """The lines that hold most of the peak."""
    alive = facts.at_peak
    of, frames = facts.lines
    asked = facts.walk.lives.asked
    rows = []
    for line in np.unique(of[alive]).tolist():
        mine = alive & (of == line)
        common = int(np.bincount(facts.kinds[mine], asked[mine]).argmax())
        rows.append(
            MemoryLineRow(
                place(facts, line),
                frames[line].name if line >= 0 else "",
                int(asked[mine].sum()) / GIB,
                int(mine.sum()),
                KINDS[common],
            )
        )
    rows.sort(key=lambda row: (row.line is None, -row.gib))  # what nobody knows comes last
    return rows[:LINES_LISTED]


def place(facts: DeviceMemoryFacts, line: int) -> str | None:
    """None where an op is all that is known."""
    return named(facts.lines[1][line]) if line >= 0 and facts.lines[1][line].file else None


def named(frame: CodeFrame) -> str:
    return f"{frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line}"


def rung_row(facts: DeviceMemoryFacts, one: Rung, total: int | None, peak: int | None = None) -> MemoryRung:
    """`peak`: of the step as it is, where that is not what was recorded."""
    peak = facts.peak_bytes if peak is None else peak
    figures: dict[str, Figure] = {
        "peak_gib": one.mid / GIB,
        "saves_gib": (peak - one.mid) / GIB,
        "saves_share": (peak - one.mid) / peak,
        "count": one.count,
        "price": one.price,
        "longer_share": one.longer or None,
        "if_wide": one.if_wide,
    }
    claim = Claim(
        f"memory-rung/{one.fix}",
        figures,
        known(module=one.module or None),
        places=lines(place(facts, one.line)),
    )
    return MemoryRung(
        [one.fix],
        Range(one.low / GIB, one.mid / GIB, one.high / GIB),
        fits=fits(facts, one, total),
        price=one.price,
        longer_share=one.longer or None,
        patch=memory_patches().get(one.fix, ""),
        tries=writes_patch(one.fix),
        claim=claim,
    )


def fits(facts: DeviceMemoryFacts, one: Rung, total: int | None) -> bool | None:
    """With all that torch reserves for it; where only what is allocated fits, nobody knows."""
    if total is None or one.low <= total < one.high * facts.reserved_times:
        return None
    return one.low <= total
