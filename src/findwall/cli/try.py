"""`findwall try`: make the prescribed fixes without an edit, prove what they give, keep what is proven."""  # noqa: N999

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from findwall.cli.around.progress import say
from findwall.errors import InputError
from findwall.files import write_atomically
from findwall.model.patch import Patch
from findwall.model.switches.typed_switches import is_by_switch, switched_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from findwall.cli.jobs.launchers import Launch
    from findwall.cli.jobs.trying import Job, Tried
    from findwall.model.diagnosis import Diagnosis
    from findwall.trial.stacks_tried import View


@click.command(
    "try",
    context_settings={"allow_interspersed_args": False},
    epilog="Put it in front of the command you use: findwall try train.py --lr 3e-4, findwall try torchrun "
    "--nproc-per-node 2 train.py, findwall try accelerate launch train.py. Each trial runs the script again, "
    "with everything it does: what it writes, it writes each time.",
)
@click.option("-m", "is_module", is_flag=True, help="TARGET is a module, as in python -m.")
@click.option("--fixes", metavar="A,B", default="", help="Try only these, prescribed or not.")
@click.option("--no-numerics", is_flag=True, help="Leave out fixes that round differently.")
@click.option(
    "--budget", metavar="TIME", default="10m", show_default=True, help="The most that the trials may take."
)
@click.option(
    "--repeat", type=click.IntRange(2, 20), default=3, show_default=True, help="Processes of each arm."
)
@click.option("--steps", type=click.IntRange(min=1), help="Steps to time in each process.")
@click.option(
    "--sandbox-dir",
    type=click.Path(file_okay=False),
    help="Run each process in a new folder in this one, gone after it.",
)
@click.option("--price", type=click.FloatRange(min=0), help="Of a GPU hour: what the gain saves a day.")
@click.option("--dry-run", is_flag=True, help="Look at the job and say what would be tried.")
@click.option(
    "--json", "json_target", metavar="FILE", help="Write the Diagnosis with its trials; - for stdout."
)
@click.option(
    "--write-patch", "patch_file", metavar="FILE", help="Write what is proven as a diff of the script."
)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    is_module: bool,
    fixes: str,
    no_numerics: bool,
    budget: str,
    repeat: int,
    steps: int | None,
    sandbox_dir: str | None,
    price: float | None,
    dry_run: bool,
    json_target: str | None,
    patch_file: str | None,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Try the fixes that are prescribed for TARGET, in fresh processes, and keep what is proven."""
    from findwall.cli.around.inputs import check_places, seconds
    from findwall.cli.jobs.launchers import launch_of
    from findwall.cli.jobs.looking import declared
    from findwall.cli.jobs.trying import Job, first_look, run_folder, to_try, try_fixes
    from findwall.cli.jobs.what_to_try import view_of
    from findwall.report.stream import say as show

    if patch_file is not None and patch_file.endswith(".py"):
        raise InputError(f"{patch_file} is a script, and no script is edited", "Write it as FILE.patch.")
    launch = launch_of((target, *arguments), is_module)
    typed = launch
    if sandbox_dir:
        launch = launch.elsewhere()
    job = Job(
        target=launch.target,
        arguments=launch.arguments,
        is_module=launch.is_module,
        launcher=launch.launcher,
        folder=run_folder(launch.target),
        cwd=sandbox_dir,
        rounds=repeat,
        steps=steps,
        budget_s=seconds(budget),
        numerics=not no_numerics,
        only=to_try(fixes),
    )
    check_places("try", typed, sandbox_dir, json_target)
    if dry_run:
        seen = first_look(job, say)
        view = view_of(seen, job.numerics, job.only, declared(job.folder), job.arguments)
        show(_would_try(seen, view, job.only))
        return
    _tell(try_fixes(job, say), job, typed, patch_file, json_target, price)


def _tell(
    tried: Tried,
    job: Job,
    typed: Launch,
    patch_file: str | None,
    json_target: str | None,
    price: float | None,
) -> None:
    """What was found: in words, as a patch, as JSON, and in the run folder."""
    from findwall.cli.jobs.left_by_hand import left_by_hand
    from findwall.cli.jobs.trying import keep
    from findwall.cli.jobs.what_to_try import stand_ins
    from findwall.fixes.stack_patch import patch_of
    from findwall.report import document
    from findwall.report.stream import say as show
    from findwall.report.texts.trials import to_text, with_trials
    from findwall.trial.stacks_tried import EARLY

    diagnosis = with_trials(tried.before, tried.found)
    stack = tried.found.stack
    typed = replace(typed, arguments=switched_on(typed.arguments, stack))
    patch = patch_of([name for name in stack if not is_by_switch(name)], tried.applied)
    if json_target != "-":  # first: what took minutes is not lost where a file cannot be written
        attempts = [one for stage in tried.found.stages for one in stage.attempts]
        shown = stand_ins(tuple({name for one in attempts for name in one.fixes}))
        made = (typed.job, patch, typed.front, price, shown, job.only, left_by_hand(tried, job.numerics))
        show(to_text(diagnosis, tried.found, tried.after, *made, plain=typed.plain))
    if patch_file is not None:
        write_patch(patch, patch_file)
    if json_target is not None:
        document.write(diagnosis, json_target)
    if job.folder is not None:
        keep(job.folder, diagnosis)
    if tried.found.ended == EARLY["interrupted"]:
        sys.stdout.flush()
        raise KeyboardInterrupt  # what was measured is told: the rest is as of any interrupted command


def _would_try(seen: Diagnosis, view: View, only: Sequence[str]) -> str:
    """`only`: the fixes that a person named, if any."""
    from findwall.cli.jobs.what_to_try import stand_ins
    from findwall.report.texts.trials import labelled, why_nothing

    made = [one.switched or one.fixes for one in view.candidates]
    names = [labelled(one, stand_ins(one)) for one in made]
    lines = [f"wall: {view.wall}", *(f"would try {name}" for name in names)]
    if not names:
        lines.append(f"would try nothing: {why_nothing(seen, only)}")
    return "\n".join(lines) + "\n"


def write_patch(patch: Patch, file: str) -> None:
    """Line ends as they are in the files that it changes."""
    if not patch.diff:
        say(f"there is no patch to write to {file}")
        return
    try:
        write_atomically(Path(file), patch.diff.encode())
    except OSError as error:
        say(f"cannot write {file}: {error.strerror}")
        return
    root, written = shlex.quote(str(patch.root)), shlex.quote(str(Path(file).resolve()))
    say(f"to keep it: cd {root} && git apply {written}")
