"""`findwall ceilings`: measure what this machine can do, and keep it for later verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall.units import format_rate, format_share

if TYPE_CHECKING:
    from rich.table import Table

    from findwall.machine.ceilings import CeilingsReport, Rate


LONGEST_BAR = 30  # characters, so that a line of the curve fits into 80 columns


class ShapeType(click.ParamType):  # type: ignore[type-arg]
    name = "M,N,K"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        words = str(value).lower().replace("x", ",").split(",")
        if len(words) != 3 or not all(word.strip().isdigit() and int(word) > 0 for word in words):
            self.fail(
                f"{value!r} is not a matmul shape: give three positive sizes, as in 4096,11008,4096.",
                param,
                ctx,
            )
        m, n, k = (int(word) for word in words)
        return m, n, k


@click.command(name="ceilings")
@click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    is_flag=False,
    flag_value="-",
    help="Write the report as JSON; `findwall read` takes it with --ceilings.",
)
@click.option("--refresh", is_flag=True, help="Measure again even if a measurement is kept.")
@click.option(
    "--shape",
    "shapes",
    type=ShapeType(),
    multiple=True,
    metavar="M,N,K",
    help="Time a matmul of your job's own shape too (repeatable).",
)
@click.option("--device", help="cuda:1, or cpu. Default: the first GPU torch sees, else the CPU.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(1, 600),
    default=30.0,
    show_default=True,
    help="The most seconds it may take.",
)
def command(
    json_path: str | None,
    refresh: bool,
    shapes: tuple[tuple[int, int, int], ...],
    device: str | None,
    budget_s: float,
) -> None:
    """Measure what this machine can really do.

    Matmul speed by math type, memory bandwidth, the cost of a launch, host-device copies, all-reduce: burst
    and sustained, in under 30 seconds. The result is kept by GPU, driver and torch; verdicts then use it
    instead of the datasheet. Run it while nothing else uses the device.
    """
    report, kept = (None, None) if refresh or shapes else (_kept(device), None)
    if report is not None and _is_doubtful(report):
        click.echo("The kept ceilings may have been measured on a busy machine.", err=True)
        report = None
    if report is None:
        report, kept = _measured(device, budget_s, shapes)
    if json_path is not None:
        write_json(report, json_path)
    if json_path != "-":
        show(report, kept)


def _kept(device: str | None) -> CeilingsReport | None:
    """A measurement of this device with this driver and torch, made earlier."""
    from findwall.machine.ceilings import cached_report
    from findwall.machine.ceilings.numpy_cores import core_name
    from findwall.machine.environment import driver_version

    try:
        import torch
    except ImportError:
        return cached_report(core_name(), "", "")
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if not on_gpu:
        return cached_report(core_name(), "", str(torch.__version__)) if device in (None, "cpu") else None
    try:
        name = torch.cuda.get_device_name(device)
    except (RuntimeError, ValueError, AssertionError):  # no such device: measuring will say so in words
        return None
    return cached_report(name, driver_version() or "", str(torch.__version__))


def _is_doubtful(report: CeilingsReport) -> bool:
    """Marked so, or of cores whose load nobody looked at."""
    from findwall.machine.neighbours import look

    on_cores = not report.driver
    return bool(report.ceilings.doubt) or (on_cores and report.others_busy is None and look() is not None)


def _measured(
    device: str | None, budget_s: float, shapes: tuple[tuple[int, int, int], ...]
) -> tuple[CeilingsReport, Path | None]:
    from findwall.machine.ceilings import measure_ceilings, store
    from findwall.machine.environment import audit

    click.echo(f"Measuring (at most {budget_s:.0f} s)…", err=True)
    for finding in audit():
        if finding.level == "warning":
            click.echo(f"Note: {finding.sentence}", err=True)
    report = measure_ceilings(device, budget_s, shapes)
    return report, store(report)


def write_json(report: object, path: str) -> None:
    """A msgspec object as JSON to a file, or to stdout for "-"."""
    import msgspec

    from findwall.report.document import put

    put(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n", path)


def show(report: CeilingsReport, kept: Path | None) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    ceilings = report.ceilings
    console.print(Text(f"{ceilings.device}: {ceilings.origin}"))
    console.print(_table(report))
    if len(report.curve) > 1:
        console.print(_curve(report))
    for note in report.notes:
        console.print(Text(f"Note: {note}"))
    if ceilings.doubt and kept is None:
        console.print(Text("Not kept: an earlier measurement is more reliable."))
    if kept is not None:
        console.print(Text(f"Kept in {kept}; measured in {report.seconds:.0f} s."))


def _table(report: CeilingsReport) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("burst", "sustained", "of spec"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    ceilings = report.ceilings
    for rate in report.matmul:
        table.add_row(*_row(rate, f"{rate.name} matmul", ceilings.spec_flops.get(rate.name)))
    for rate in report.memory:
        table.add_row(*_row(rate, f"memory {rate.name}", ceilings.spec_bandwidth))
    for rate in (*report.copies, *report.links, *report.launches):
        table.add_row(*_row(rate, rate.name, None))
    for rate in report.shapes:
        table.add_row(*_row(rate, f"{rate.name} at your shape", ceilings.spec_flops.get(rate.name)))
    return table


def _row(rate: Rate, label: str, spec: float | None) -> tuple[str, str, str, str, str]:
    figure = rate.figure
    share = format_share(figure / spec) if figure is not None and spec else ""
    return label, _amount(rate.burst, rate.unit), _amount(rate.sustained, rate.unit), share, rate.what


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "s":
        return f"{value * 1e6:.2f} us"
    return format_rate(value, unit)


def _curve(report: CeilingsReport) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="FLOP/s against FLOPs per byte", title_justify="left")
    table.add_column("FLOP/byte", justify="right")
    table.add_column("FLOP/s", justify="right")
    table.add_column("bytes/s", justify="right")
    table.add_column("")
    top = max(point.flops for point in report.curve)
    for point in report.curve:
        bar = "#" * max(1, round(LONGEST_BAR * point.flops / top))
        table.add_row(
            f"{point.intensity:.3g}", _amount(point.flops, "FLOP/s"), _amount(point.bandwidth, "bytes/s"), bar
        )
    return table
