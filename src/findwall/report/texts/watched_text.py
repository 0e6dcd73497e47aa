"""A job that was watched from outside, in short phrases and rows: what `findwall watch` shows besides."""

from __future__ import annotations

from findwall.model.answers.watch_answer import Watch, WatchedRow
from findwall.model.diagnosis import Diagnosis
from findwall.report.printable_names import clean, fit
from findwall.units import format_share

LINES_SHOWN = 3
ROWS_SHOWN = 16  # ranks; the odd ones are always among them
SHORTEST_LINE = 12  # characters: "train.py:123"
QUIET_MIB_S = 0.05  # less than that is nothing
_HEADER = (
    f"  {'rank':<6}{'pid':<9}{'SM':>6}{'tensor':>8}{'DRAM':>7}{'power':>8}{'clock':>10}{'cores':>7}  line"
)


def lines(watch: Watch) -> list[str]:
    """Where the host was seen most often, then the loader workers."""
    found = []
    for who, said in (("host", "the host"), ("worker", "a loader worker")):
        rows = [row for row in watch.lines if row.who == who][:LINES_SHOWN]
        for row in rows:
            inside = f" ({clean(row.inside)})" if row.inside else ""
            named = f"{clean(row.line)} in {clean(row.function)}{inside}"
            found.append(f"{named}: {said} was here in {format_share(row.share)} of the looks")
    return found


def facts(watch: Watch) -> list[tuple[str, str]]:
    """What is known of the machine under the job, a label each."""
    looked = f"{watch.seconds:.0f} s, {watch.looks} looks at the Python line"
    missed = f", {watch.missed} missed" if watch.missed else ""
    ended = " until the job ended" if watch.has_ended else ""
    found = [("watched", f"{looked}{missed}{ended}")]
    if len(watch.ranks) == 1:
        row = watch.ranks[0]
        found += [("GPU", _gpu(row)), ("CPU", _cpu(row))]
    return [(label, text) for label, text in found if text]


def table(diagnosis: Diagnosis, width: int) -> list[str]:
    """One row a rank, where there are several; the odd one is marked, with what is odd about it below it."""
    watch = diagnosis.watch
    if watch is None or len(watch.ranks) < 2:
        return []
    shown = watch.ranks[:ROWS_SHOWN] + [row for row in watch.ranks[ROWS_SHOWN:] if row.odd]
    found = [_HEADER]
    for number, row in enumerate(shown):
        found.append(_row(number, row, width))
        if row.odd:
            found.append(f"      ^ {clean(row.odd)}")
    left = len(watch.ranks) - len(shown)
    return [*found, *([f"  … {left} more in --json"] if left else [])]


def _row(number: int, row: WatchedRow, width: int) -> str:
    mark = ">" if row.odd else " "
    name = str(number if row.rank is None else row.rank)
    figures = (
        f"{mark} {name:<6}{row.pid:<9}{_share(row.sm_share):>6}{_share(row.tensor_share):>8}"
        f"{_share(row.dram_share):>7}{_figure(row.power_w, 'W'):>8}{_figure(row.sm_clock_mhz, 'MHz'):>10}"
        f"{'?' if row.cores is None else f'{row.cores:.1f}':>7}  "
    )
    return figures + fit(clean(row.line or "?"), max(width - len(figures), SHORTEST_LINE))


def _share(value: float | None) -> str:
    return "?" if value is None else format_share(value)


def _figure(value: float | None, unit: str) -> str:
    return "?" if value is None else f"{value:.0f} {unit}"


def _gpu(row: WatchedRow) -> str:
    if row.gpu is None:
        return ""
    parts = [
        f"SM {_share(row.sm_share)}",
        f"tensor {_share(row.tensor_share)}",
        f"DRAM {_share(row.dram_share)}",
        _figure(row.power_w, "W"),
        _figure(row.sm_clock_mhz, "MHz"),
    ]
    if row.memory_gib is not None:
        parts.append(f"{row.memory_gib:.1f} GiB")
    if row.pcie_to_gpu_mib_s is not None and row.pcie_from_gpu_mib_s is not None:
        parts.append(f"PCIe {row.pcie_to_gpu_mib_s:.0f} MiB/s in, {row.pcie_from_gpu_mib_s:.0f} out")
    held = [name for name, share in (row.throttle or {}).items() if name != "gpu-idle" and share >= 0.5]
    return " · ".join([*parts, *(f"clocks held by {name}" for name in held)])


def _cpu(row: WatchedRow) -> str:
    if row.cores is None:
        return ""
    parts = [f"{row.cores:.1f} cores busy" + (f", {row.workers} loader workers" if row.workers else "")]
    if row.in_line_share is not None:
        parts.append(f"waits for a core {format_share(row.in_line_share)} of the time")
    for what, rate in (("reads", row.read_mib_s), ("writes", row.write_mib_s)):
        if rate is not None and rate > QUIET_MIB_S:
            parts.append(f"{what} {rate:.1f} MiB/s")
    return " · ".join(parts)
