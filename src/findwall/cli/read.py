"""Name the wall of a job from files that exist already.

PATH is a torch.profiler trace (.json, .json.gz, .json.zst), an Nsight Systems export (.sqlite), a folder of
them (one a rank), several of these (traces also at s3://, gs:// and the like), a run folder that `findwall
run` wrote, what Nsight Compute counted (`ncu --csv`, or its report), or a memory snapshot of torch (.pickle,
.pickle.gz). Without one it is the newest run in findwall-runs. Needs no GPU and no torch.

Traces at an address need fsspec (pip install 'findwall[remote]') and are streamed, never stored here; --ray
needs ray (pip install 'findwall[ray]'), and findwall on each machine of the cluster.

Exits 3 if --fail-wall is given and that wall or cause is the verdict; else 0.
"""

from __future__ import annotations

import atexit
import gc
import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from findwall.cli.around.progress import say
from findwall.errors import FindwallError, InputError
from findwall.report.printable_names import clean

if TYPE_CHECKING:
    from findwall.examine import Examined
    from findwall.model.diagnosis import Diagnosis
    from findwall.model.measured_run import Run


# Fixes whose ops can be probed, and files that are there where a driver is.
PROBED = frozenset(
    {"bf16-autocast", "tf32", "channels-last", "pad-shapes", "sdpa", "fused-optimizer", "pin-memory"}
)
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)


@click.command("read", help=__doc__)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--step-ms", type=float, metavar="X", help="The true step time, measured without the profiler.")
@click.option(
    "--ceilings", type=click.Path(), metavar="FILE", help="Measured ceilings, instead of the table."
)
@click.option("--gpu", metavar="NAME", help="The GPU, where the file does not name it, as in NVIDIA H200.")
@click.option(
    "--max-memory",
    metavar="SIZE",
    help="The most memory reading may take, as in 8G or 512M; by default half of what is free.",
)
@click.option(
    "--what-if",
    metavar="FIXES",
    help="Predict the step with these fixes made, as in loader-workers=4,pin-memory.",
)
@click.option(
    "--ncu",
    type=click.Path(),
    metavar="FILE",
    help="Take the bytes that Nsight Compute counted of these kernels, from its CSV or report.",
)
@click.option(
    "--execution",
    type=click.Path(),
    metavar="FILE",
    help="What torch's ExecutionTraceObserver recorded of the same job: who reads what each op makes.",
)
@click.option(
    "--baseline",
    type=click.Path(),
    metavar="RUN",
    help="The same job on fewer ranks: tells how well it scales from there to here.",
)
@click.option(
    "--summaries",
    type=click.Path(),
    metavar="DIR",
    help="Write a summary of each rank there, a few kilobytes each: `read` takes them in place of traces.",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Read the ranks' files on the Ray cluster there, as in auto or 10.0.0.1:6379.",
)
@click.option("--brief", "is_brief", is_flag=True, help="Show only the verdict and what to try.")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Add a table of the N longest ops and kernels."
)
@click.option("--json", "json_target", metavar="FILE", help="Write the Diagnosis as JSON; - for stdout only.")
@click.option("--page", "page_target", metavar="FILE", help="Write the page as well: one HTML file.")
@click.option(
    "--export-trace",
    "trace_target",
    metavar="FILE",
    help="Write the step as a trace for Perfetto (.json or .json.gz), with findwall's own tracks.",
)
@click.option(
    "--fail-wall",
    "fail_walls",
    metavar="NAME",
    multiple=True,
    help="Exit with 3 if this wall or cause is the verdict. May be repeated. Findings accepted in "
    ".findwall.toml pass.",
)
def command(
    paths: tuple[str, ...],
    step_ms: float | None,
    ceilings: str | None,
    gpu: str | None,
    max_memory: str | None,
    what_if: str | None,
    ncu: str | None,
    execution: str | None,
    baseline: str | None,
    summaries: str | None,
    ray: str | None,
    is_brief: bool,
    top: int | None,
    json_target: str | None,
    page_target: str | None,
    trace_target: str | None,
    fail_walls: tuple[str, ...],
) -> int:
    _check_step(step_ms)
    if summaries is not None:
        return _summarise(paths, summaries, ray)
    from findwall.cli.around.gate import WallGate
    from findwall.cli.around.newest import resolve
    from findwall.cli.report import check_trace_name

    if trace_target is not None:
        check_trace_name(trace_target)
    gate = WallGate(fail_walls)
    asked: dict[str, Any] = {
        "step_ms": step_ms,
        "ceilings": ceilings,
        "gpu": gpu,
        "max_memory": None if max_memory is None else bytes_of(max_memory),
        "what_if": what_if,
        "ncu": ncu,
        "execution": execution,
        "ray": ray,
        "baseline": baseline,
    }
    chosen, which = resolve(paths)
    if which:
        say(which)
    diagnosis, seen = _read(chosen, asked, is_drawn=page_target is not None or trace_target is not None)
    from findwall.report import document

    try:
        if json_target is not None:
            document.write(diagnosis, json_target)
    finally:  # a full disk must not cost a person the answer
        if json_target != "-":
            show(diagnosis, is_brief, top)
    if seen is not None:  # last: nobody waits for it
        _draw_all(*seen, page_target, trace_target)
    judged = gate.of_wall(diagnosis.wall, script_of(chosen)) if fail_walls else None
    if judged is not None and judged.said:
        say(judged.said)
    return 0 if judged is None else judged.code


def _summarise(paths: tuple[str, ...], target: str, ray: str | None) -> int:
    """Where the traces lie: what they say together is read from all summaries then."""
    from findwall.cli.around.newest import resolve
    from findwall.cli.around.progress import progress_bar
    from findwall.examine.many_ranks import write_summaries
    from findwall.readers.remote_paths import place

    folder = place(target)
    chosen, which = resolve(paths)
    if which:
        say(which)
    with progress_bar("reading") as progress:
        written, refused = write_summaries([place(path) for path in chosen], folder, progress, ray)
    for reason in refused:
        say(f"left out: {reason}")
    count = "1 summary" if len(written) == 1 else f"{len(written)} summaries"
    say(f"{count} in {folder}; `findwall read {shlex.quote(clean(str(folder)))}` compares them")
    return 0


def _check_step(step_ms: float | None) -> None:
    if step_ms is not None and not (math.isfinite(step_ms) and step_ms > 0):
        raise InputError(
            f"--step-ms {step_ms} is not a step time", "Give milliseconds above zero, as in --step-ms 41.3."
        )


def _read(
    paths: list[str], asked: dict[str, Any], is_drawn: bool
) -> tuple[Diagnosis, tuple[Run, Examined] | None]:
    """The Diagnosis; and what it rests on, where something is drawn of it."""
    from findwall import api
    from findwall.cli.around.progress import progress_bar

    # Millions of small objects come and go in blocks, none in circles: the collector would only walk them.
    gc.disable()
    atexit.register(gc.freeze)  # nor need it walk all there is once more when the process ends
    try:
        with progress_bar("reading") as progress:
            if not is_drawn:
                return api.read(paths, progress=progress, **asked), None
            seen = api.look(paths, progress=progress, **asked)
            return seen[1].diagnosis, seen
    finally:
        gc.enable()


def _draw_all(run: Run, found: Examined, page_target: str | None, trace_target: str | None) -> None:
    if page_target is not None:
        draw(run, found, Path(page_target))
    if trace_target is not None:
        from findwall.cli.report import export_trace
        from findwall.examine.series import gather

        export_trace(found, gather(run, found.facts), trace_target)


def script_of(paths: list[str]) -> str | None:
    """The job's script, where the input is a run folder."""
    from findwall.model.measurement import RUN_FILE
    from findwall.readers.run_folder import run_info

    folder = Path(paths[0])
    info = run_info(folder) if len(paths) == 1 and (folder / RUN_FILE).is_file() else None
    return None if info is None else info.script


def draw(run: Run, found: Examined, target: Path) -> None:
    """The page. Where it cannot be drawn, the verdict stands all the same."""
    from findwall.cli.report import write_page
    from findwall.examine.series import gather

    try:
        write_page(found.diagnosis, gather(run, found.facts), target)
    except FindwallError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to lose the verdict
        say(f"the page was not drawn ({type(error).__name__}: {error})")


def bytes_of(size: str) -> int:
    """A size as people write it: 8G, 512M, 1.5 GiB, or bytes."""
    found = _SIZE.fullmatch(size.strip())
    count = int(float(found[1]) * 1024 ** " KMGT".index((found[2] or " ").upper())) if found else 0
    if count <= 0:
        raise InputError(f"--max-memory {size} is not a size", "Give one as in --max-memory 8G or 512M.")
    return count


def show(diagnosis: Diagnosis, is_brief: bool = False, top: int | None = None) -> None:
    """The terminal view on standard output, and a table of the longest ops where one is asked for."""
    from rich.console import Console

    from findwall.report import terminal

    console = Console()
    terminal.render(diagnosis, console, is_brief)
    if top is not None:
        from findwall.report import stream
        from findwall.report.texts.top import to_text

        width = min(console.width, terminal.WIDEST_LINE)
        stream.say("\n" + to_text(diagnosis, top, width))
    if offer := probe_offer(diagnosis):
        click.echo(offer)


def probe_offer(diagnosis: Diagnosis) -> str:
    """The command that would measure what is predicted from curves, where this machine has a GPU for it."""
    curved = [one for one in diagnosis.prescriptions if one.basis == "curves" and PROBED & set(one.fixes)]
    paths = diagnosis.source.paths
    if not curved or len(paths) != 1 or not any(Path(one).exists() for one in GPU_FILES):
        return ""
    return f"`findwall probe {shlex.quote(clean(paths[0]))}` measures what these fixes give, in about 10 s."
