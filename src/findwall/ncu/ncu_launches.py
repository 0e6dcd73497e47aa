"""From the figures of a launch to a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.model.ncu_kernel import Dims, NcuKernel
from findwall.ncu.ncu_metrics import Figures
from findwall.ncu.ncu_numbers import triple
from findwall.ncu.ncu_rules import add_rule
from findwall.ncu.ncu_table import AGAIN, Table
from findwall.units import NS_PER_S

IDENTITY = ("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC")
_CAPABILITY = re.compile(r"(\d+)\.\d+")
# Blocks that a multiprocessor takes at most because of each of these.
LIMITS = {
    "limit_registers": "registers",
    "limit_shared": "shared memory",
    "limit_warps": "block size",
    "limit_blocks": "blocks per multiprocessor",
    "limit_barriers": "barriers",
}


class Launch(msgspec.Struct):
    """One launch while it is read."""

    name: str
    grid: Dims | None
    block: Dims | None
    figures: Figures = msgspec.field(default_factory=Figures)


def launches(path: Path, table: Table) -> list[Launch]:
    """Every launch of a table, in its order."""
    return list(_long(path, table)) if table.is_long else list(_wide(table))


def _wide(table: Table) -> Iterator[Launch]:
    at = {name: index for index, name in enumerate(table.header)}
    units = table.units or []
    for row in table.rows:
        launch = _identify(row, at)
        for name, index in at.items():
            if name not in IDENTITY:
                launch.figures.add(name, units[index], row[index])
        yield launch


def _long(path: Path, table: Table) -> Iterator[Launch]:
    at = {name: index for index, name in enumerate(table.header)}
    rule = at.get("Rule Description")
    section = at.get("Section Name")
    found: dict[tuple[str, str], Launch] = {}
    for row in table.rows:
        key = (row[at["ID"]], row[at["Process ID"]])
        seen = found.get(key)
        launch = seen or found.setdefault(key, _identify(row, at))
        if seen is not None and seen.name != row[at["Kernel Name"]]:
            raise InputError(f"{path} is damaged: kernel {key[0]} has two names.", AGAIN)
        name = row[at["Metric Name"]]
        if name:
            place = row[section] if section is not None else ""
            launch.figures.add(name, row[at["Metric Unit"]], row[at["Metric Value"]], place)
        elif rule is not None and rule < len(row):
            add_rule(launch.figures, row[rule])
    yield from found.values()


def _identify(row: list[str], at: dict[str, int]) -> Launch:
    grid, block = (triple(row[at[name]]) if name in at else None for name in ("Grid Size", "Block Size"))
    launch = Launch(row[at["Kernel Name"]].strip(), grid, block)
    capability = _CAPABILITY.fullmatch(row[at["CC"]].strip()) if "CC" in at else None
    if capability is not None:
        launch.figures.values["capability"] = float(capability[1])
    return launch


def kernel(launch: Launch) -> NcuKernel:
    """All that is asked of one launch."""
    figures = launch.figures
    get = figures.get
    stall, share = _stall(figures)
    most = get("most_occupancy")
    generation = get("capability")
    return NcuKernel(
        name=launch.name,
        grid=launch.grid,
        block=launch.block,
        duration_ns=get("duration") or None,  # no kernel takes no time
        dram_bytes=_bytes(figures),
        dram=get("dram"),
        memory=get("memory"),
        sm=get("sm"),
        tensor=max(figures.tensor, default=None),
        occupancy=get("occupancy"),
        most_occupancy=most,
        limited_by=_limits(figures) if most is not None and most < 1.0 else (),
        waves=get("waves"),
        capability=int(generation) if generation else None,
        gmma=get("gmma"),
        spills=get("spills"),
        wasted=_part(get("excess_sectors"), get("sectors")),
        bank_conflicts=_conflicts(figures),
        stall=stall,
        stall_share=share,
    )


def _bytes(figures: Figures) -> float | None:
    get = figures.get
    read, written = get("bytes_read"), get("bytes_written")
    if read is not None and written is not None:
        return read + written
    if get("bytes") is not None:
        return get("bytes")
    rate, duration = get("byte_rate"), get("duration")
    return rate * duration / NS_PER_S if rate is not None and duration is not None else None


def _limits(figures: Figures) -> tuple[str, ...]:
    known = {words: value for field, words in LIMITS.items() if (value := figures.get(field)) is not None}
    least = min(known.values(), default=None)
    return tuple(words for words, value in known.items() if value == least)


def _part(part: float | None, whole: float | None) -> float | None:
    if part is None or whole is None or part > whole:
        return None
    return part / whole if whole else 0.0


def _conflicts(figures: Figures) -> float | None:
    shares = (
        _part(figures.get(f"{kind}_conflicts"), figures.get(f"{kind}_wavefronts"))
        for kind in ("load", "store")
    )
    return max((share for share in shares if share is not None), default=None)


def _stall(figures: Figures) -> tuple[str | None, float | None]:
    if not figures.stalls:
        return None, None
    reason = max(figures.stalls, key=lambda name: figures.stalls[name])
    if figures.stalls[reason] <= 0:
        return None, None
    told = figures.get("stall_share")
    latency = figures.get("latency")
    share = told if told is not None else figures.stalls[reason] / latency if latency else None
    return reason, share if share is not None and share <= 1.0 else None
