"""`findwall report`: write the page of a run, a trace or a Diagnosis: one HTML file that needs nothing else.

PATH is a run folder that `findwall run` wrote, a torch.profiler trace (or several, one a rank), or a
Diagnosis that `--json` wrote. Without one it is the newest run in findwall-runs. Needs no GPU and no torch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall.cli.around.progress import say
from findwall.errors import InputError
from findwall.files import search_path

if TYPE_CHECKING:
    from findwall.examine import Examined
    from findwall.model.diagnosis import Diagnosis
    from findwall.model.series import Series


REDACTED_FILE = "report-redacted.html"


@click.command("report", help=__doc__)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to write it (default: report.html, or report-redacted.html, in the run folder or here).",
)
@click.option("--open", "is_opened", is_flag=True, help="Show it in the browser.")
@click.option("--step-ms", type=float, metavar="X", help="The true step time, measured without the profiler.")
@click.option(
    "--ceilings", type=click.Path(), metavar="FILE", help="Measured ceilings, instead of the table."
)
@click.option(
    "--markdown",
    "is_markdown",
    is_flag=True,
    help="Print the verdict as Markdown instead, for a pull request or a job's summary.",
)
@click.option(
    "--redact",
    "is_redacted",
    is_flag=True,
    help="Take out paths, scripts, arguments, source lines, modules, ranges, threads and hosts, to share the "
    "page. Kernels, ATen ops, shapes and numbers stay.",
)
@click.option(
    "--export-trace",
    "trace_target",
    metavar="FILE",
    help="Write the step as a trace for Perfetto as well (.json or .json.gz), with tracks for the blame of "
    "each gap, the wall, the floor of each kernel and the critical path.",
)
def command(
    paths: tuple[str, ...],
    output: str | None,
    is_opened: bool,
    step_ms: float | None,
    ceilings: str | None,
    is_markdown: bool,
    is_redacted: bool,
    trace_target: str | None,
) -> None:
    if trace_target is not None:
        check_trace_name(trace_target)
        if is_redacted:
            raise InputError(
                "--export-trace writes the names that --redact takes out", "Ask for one of them at a time."
            )
    from findwall.cli.around.inputs import document_at
    from findwall.cli.around.newest import resolve

    chosen, which = resolve(paths)
    if which:
        say(which)
    document = document_at(Path(chosen[0])) if len(chosen) == 1 else None
    if document is not None:
        if step_ms is not None or ceilings is not None or trace_target is not None:
            what = "it holds no trace" if trace_target is not None else "its figures are settled"
            raise InputError(
                f"{chosen[0]} is a Diagnosis: {what}", "Give the trace or the run folder it was made from."
            )
        diagnosis, series = document, None
    else:
        found, series = examined(chosen, step_ms, ceilings)
        diagnosis = found.diagnosis
        if trace_target is not None:
            export_trace(found, series, trace_target)
            click.echo(trace_target, err=is_markdown)
    if is_redacted:
        from findwall.fixes import all_fixes
        from findwall.report.redacted import redacted

        diagnosis, series = redacted(diagnosis, series, all_fixes())
    if is_markdown:
        put_markdown(diagnosis, output)
        return
    target = Path(output) if output is not None else _place(chosen, is_redacted)
    write_page(diagnosis, series, target)
    click.echo(str(target))
    if is_opened:
        _open(target)


def _open(page: Path) -> None:
    import webbrowser

    os.environ["PATH"] = search_path()  # by which browsers are looked for
    if not webbrowser.open(page.resolve().as_uri()):
        click.echo("findwall: no browser could be opened", err=True)


def put_markdown(diagnosis: Diagnosis, output: str | None) -> None:
    from findwall.report import document
    from findwall.report.markdown import to_markdown

    document.put(to_markdown(diagnosis).encode(), output or "-")


def write_page(diagnosis: Diagnosis, series: Series | None, target: Path) -> None:
    """Draw the page and put it where it was asked for."""
    from findwall import __version__
    from findwall.report import document
    from findwall.report.page import to_page

    document.save(target, to_page(diagnosis, series, __version__).encode())


def check_trace_name(target: str) -> None:
    """Before minutes of reading."""
    if not target.endswith((".json", ".json.gz")):
        raise InputError(
            f"--export-trace {target}: no trace is called so", "Name a file that ends in .json or .json.gz."
        )


def export_trace(found: Examined, series: Series, target: str) -> None:
    """The step as a Chrome trace."""
    if found.facts is None:
        raise InputError(
            "there is no step to export: no work of a device was traced", "Give a trace with one in it."
        )
    from findwall.examine.series import own_tracks
    from findwall.report import document
    from findwall.report.perfetto import packed, to_trace

    trace = to_trace(found.diagnosis, series.timeline, own_tracks(found.facts))
    document.save(Path(target), packed(trace, target))


def examined(chosen: list[str], step_ms: float | None, ceilings: str | None) -> tuple[Examined, Series]:
    from findwall import api
    from findwall.cli.around.progress import progress_bar
    from findwall.examine.series import gather

    with progress_bar("reading") as progress:
        run, found = api.look(chosen, step_ms, ceilings, progress)
    return found, gather(run, found.facts)


def _place(chosen: list[str], is_redacted: bool) -> Path:
    """In the run folder, where it is one that can be written to; else here. The whole page stays there."""
    from findwall.model.measurement import REPORT_FILE, RUN_FILE

    folder, name = Path(chosen[0]), REDACTED_FILE if is_redacted else REPORT_FILE
    return folder / name if (folder / RUN_FILE).is_file() else Path(name)
