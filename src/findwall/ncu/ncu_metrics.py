"""Which of Nsight Compute's metrics say what: by their names, and by the labels that the details page prints.

Names differ between GPU generations and versions; of several that say the same, the first one there is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from findwall.ncu.ncu_numbers import FigureError, figure, scale

STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
# Warps that could have gone on are not stalled.
NO_STALL = frozenset({"selected", "not_selected"})
# A pipe of tensor cores, by whatever the generation calls it.
TENSOR = re.compile(
    r"sm__pipe_(?:tensor|tc)(?:_op_\w+?|_type_\w+?)?_cycles_active\.avg\.pct_of_peak_sustained_elapsed"
)
# Bytes and nanoseconds come whole, or with other than three decimals: `508.800` byte are half a million.
WHOLE_UNITS = ("byte", "ns", "nsecond")
GROUPED_BY_A_DOT = re.compile(r"\d{1,3}\.\d{3}")
DEVICE = "device__attribute_display_name"
LONGEST_NAME = 300  # characters: no metric's is half as long
# Rounding and passes that differ a little: a share this much above all of it is all of it. More is refused.
MOST_SHARE = 1.02
LEAST_SHARE = -0.01


class Asked(msgspec.Struct, frozen=True):
    """One figure: the metrics that hold it, best first, and (section, label) of the details page."""

    unit: str  # as `numbers.scale` names them
    names: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_LIGHT = "GPU Speed Of Light Throughput"
_LIGHT_2020 = "GPU Speed Of Light"
_MEMORY = "Memory Workload Analysis"
_OCCUPANCY, _LAUNCH, _WARPS = "Occupancy", "Launch Statistics", "Warp State Statistics"

ASKED: dict[str, Asked] = {
    "duration": Asked(
        "ns",
        ("gpu__time_duration.sum", "gpu__time_duration.avg"),
        ((_LIGHT, "Duration"), (_LIGHT_2020, "Duration")),
    ),
    "dram": Asked(
        "share",
        (f"gpu__dram_throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}", f"dram__cycles_active{_ELAPSED}"),
        ((_LIGHT, "DRAM Throughput"), (_LIGHT_2020, "SOL DRAM"), (_LIGHT_2020, "SOL FB")),
    ),
    "memory": Asked(
        "share",
        (f"gpu__compute_memory_throughput{_ELAPSED}",),
        ((_LIGHT, "Memory Throughput"), (_LIGHT_2020, "Memory [%]")),
    ),
    "sm": Asked(
        "share",
        (f"sm__throughput{_ELAPSED}",),
        ((_LIGHT, "Compute (SM) Throughput"), (_LIGHT_2020, "SM [%]")),
    ),
    "bytes": Asked("byte", ("dram__bytes.sum",)),
    "bytes_read": Asked("byte", ("dram__bytes_read.sum",)),
    "bytes_written": Asked("byte", ("dram__bytes_write.sum",)),
    "byte_rate": Asked("byte/s", ("dram__bytes.sum.per_second",), ((_MEMORY, "Memory Throughput"),)),
    "occupancy": Asked(
        "share",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",),
        ((_OCCUPANCY, "Achieved Occupancy"),),
    ),
    "most_occupancy": Asked(
        "share", ("sm__maximum_warps_per_active_cycle_pct",), ((_OCCUPANCY, "Theoretical Occupancy"),)
    ),
    "limit_registers": Asked(
        "", ("launch__occupancy_limit_registers",), ((_OCCUPANCY, "Block Limit Registers"),)
    ),
    "limit_shared": Asked(
        "", ("launch__occupancy_limit_shared_mem",), ((_OCCUPANCY, "Block Limit Shared Mem"),)
    ),
    "limit_warps": Asked("", ("launch__occupancy_limit_warps",), ((_OCCUPANCY, "Block Limit Warps"),)),
    "limit_blocks": Asked("", ("launch__occupancy_limit_blocks",), ((_OCCUPANCY, "Block Limit SM"),)),
    "limit_barriers": Asked(
        "", ("launch__occupancy_limit_barriers",), ((_OCCUPANCY, "Block Limit Barriers"),)
    ),
    "waves": Asked("", ("launch__waves_per_multiprocessor",), ((_LAUNCH, "Waves Per SM"),)),
    "capability": Asked("", ("device__attribute_compute_capability_major",)),
    "gmma": Asked("share", (f"sm__inst_executed_pipe_tensor_op_gmma{_ELAPSED}",)),
    "spills": Asked(
        "",
        ("derived__local_spilling_requests", "sass__inst_executed_register_spilling"),
        ((_MEMORY, "Local Memory Spilling Requests"),),
    ),
    "excess_sectors": Asked("", ("derived__memory_l2_theoretical_sectors_global_excessive",)),
    "sectors": Asked("", ("memory_l2_theoretical_sectors_global",)),
    "load_conflicts": Asked("", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",)),
    "store_conflicts": Asked("", ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",)),
    "load_wavefronts": Asked("", ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",)),
    "store_wavefronts": Asked("", ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",)),
    "latency": Asked(
        "",
        ("smsp__average_warp_latency_per_inst_issued.ratio",),
        ((_WARPS, "Warp Cycles Per Issued Instruction"),),
    ),
}
_BY_NAME = {name: (field, rank) for field, one in ASKED.items() for rank, name in enumerate(one.names)}
_BY_LABEL = {place: field for field, one in ASKED.items() for place in one.labels}
# `--print-metric-name label-name`: the name stands behind the label.
_NAME_BEHIND = re.compile(r".*\(([a-z](?:_?[^\W_])*__[\w.]+)\)")


def is_metric(name: str) -> bool:
    """Whether anything is read from a metric of this name."""
    return name in _BY_NAME or name == DEVICE or bool(STALL.fullmatch(name) or TENSOR.fullmatch(name))


class Figures(msgspec.Struct):
    """What was read of one launch, in the units of `ASKED`."""

    values: dict[str, float] = msgspec.field(default_factory=dict)
    stalls: dict[str, float] = msgspec.field(default_factory=dict)
    tensor: list[float] = msgspec.field(default_factory=list)
    device: str | None = None
    refused: set[str] = msgspec.field(default_factory=set)  # metrics whose value cannot be
    grouped: str = ""  # a whole number that only a locale with a decimal comma writes so
    _ranks: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, name: str, unit: str, text: str, section: str = "") -> None:
        """One metric, by its name or, of the details page, by its label."""
        if name == DEVICE:
            self.device = text.strip() or None
            return
        if len(name) > LONGEST_NAME:
            return
        behind = _NAME_BEHIND.fullmatch(name)
        name = behind[1] if behind else name
        try:
            self._add(name, unit, text, section)
        except FigureError:
            self.refused.add(name)

    def _add(self, name: str, unit: str, text: str, section: str) -> None:
        if stall := STALL.fullmatch(name):
            value = figure(text)
            if value is not None and value >= 0 and stall[1] not in NO_STALL:
                self.stalls[stall[1]] = value
            return
        if TENSOR.fullmatch(name):
            self.tensor += list(_share(self, name, unit, text))
            return
        for field, rank in _fields(name, section):
            if unit.strip() in WHOLE_UNITS and GROUPED_BY_A_DOT.fullmatch(text.strip()):
                self.grouped = text.strip()
            value, factor = figure(text), scale(unit, ASKED[field].unit)
            if value is None or factor is None or rank >= self._ranks.get(field, rank + 1):
                continue  # nothing there, another quantity of the same label, or a better source before
            value *= factor
            is_share = ASKED[field].unit == "share"
            if not (LEAST_SHARE <= value <= MOST_SHARE if is_share else value >= 0):
                self.refused.add(name)
                continue
            self.values[field] = min(max(value, 0.0), 1.0) if is_share else value
            self._ranks[field] = rank

    def get(self, field: str) -> float | None:
        return self.values.get(field)


def _fields(name: str, section: str) -> Iterator[tuple[str, int]]:
    if name in _BY_NAME:
        yield _BY_NAME[name]
    elif (section, name) in _BY_LABEL:
        yield _BY_LABEL[section, name], len(ASKED[_BY_LABEL[section, name]].names)


def _share(figures: Figures, name: str, unit: str, text: str) -> Iterator[float]:
    value, factor = figure(text), scale(unit, "share")
    if value is None or factor is None:
        return
    if not LEAST_SHARE <= value * factor <= MOST_SHARE:
        figures.refused.add(name)
        return
    yield min(max(value * factor, 0.0), 1.0)
