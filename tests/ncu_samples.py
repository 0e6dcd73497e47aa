"""What `ncu --csv` prints, made for tests: few kernels, few metrics, both shapes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

WIDE = {
    "duration": ("gpu__time_duration.sum", "us"),
    "dram": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "memory": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "sm": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    "tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "%"),
    "gmma": ("sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed", "%"),
    "read": ("dram__bytes_read.sum", "Mbyte"),
    "written": ("dram__bytes_write.sum", "Mbyte"),
    "waves": ("launch__waves_per_multiprocessor", ""),
    "excess": ("derived__memory_l2_theoretical_sectors_global_excessive", "sector"),
    "sectors": ("memory_l2_theoretical_sectors_global", "sectors"),
    "device": ("device__attribute_display_name", ""),
}
LONG = {
    "duration": ("GPU Speed Of Light Throughput", "Duration", "us"),
    "dram": ("GPU Speed Of Light Throughput", "DRAM Throughput", "%"),
    "memory": ("GPU Speed Of Light Throughput", "Memory Throughput", "%"),
    "sm": ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%"),
    "waves": ("Launch Statistics", "Waves Per SM", ""),
}
IDENTITY = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
ADD = (
    "void at::vectorized_elementwise_kernel<4, at::CUDAFunctorOnSelf_add<float>, std::array<char *, 2>>"
    "(int, T2, T3)"
)
# Of the figures below: an addition over 64 M numbers.
ROOF = {
    "duration": "125.5",
    "dram": "84.93",
    "memory": "84.93",
    "sm": "8.19",
    "tensor": "0",
    "waves": "31.03",
}


def identity(number: int, name: str, grid: str = "(65536, 1, 1)", capability: str = "9.0") -> list[str]:
    return [
        str(number),
        "17",
        "python",
        "127.0.0.1",
        name,
        "1",
        "7",
        "(128, 1, 1)",
        grid,
        "0",
        capability,
    ]


def wide(kernels: Sequence[tuple[str, dict[str, Any]]], **more: str) -> str:
    """A row a kernel. `more`: of `identity`."""
    fields = list(dict.fromkeys(field for _, figures in kernels for field in figures))
    rows = [IDENTITY + [WIDE[field][0] for field in fields]]
    rows.append([""] * len(IDENTITY) + [WIDE[field][1] for field in fields])
    for number, (name, figures) in enumerate(kernels):
        rows.append(identity(number, name, **more) + [str(figures.get(field, "n/a")) for field in fields])
    return written(rows)


def long(kernels: Sequence[tuple[str, dict[str, Any]]], rules: Sequence[str] = (), **more: str) -> str:
    """A row a metric, then a row a rule, of every kernel."""
    rows = [[*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name"]]
    rows[0] += ["Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]
    for number, (name, figures) in enumerate(kernels):
        own = identity(number, name, **more)
        rows += [[*own, *LONG[field], str(value), ""] for field, value in figures.items() if field in LONG]
        rows += [[*own, "Section", "", "", "", "Rule", "OPT", rule, "", ""] for rule in rules]
    return written(rows)


def written(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()
