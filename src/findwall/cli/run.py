"""`findwall run`: measure a job without editing it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click

from findwall.agent.launch import Judge, launch
from findwall.agent.options import Last, Options
from findwall.agent.rank_sample import parsed
from findwall.apply.applying import Apply, Effects
from findwall.errors import InputError
from findwall.model.arms import REPORT


def _ranks(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        parsed(value)
    except ValueError:
        raise click.BadParameter(f"{value} is none of all, a number, or ranks as in 0,3,8-11.") from None
    return value


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="Put it in front of the command you use: findwall run train.py --lr 3e-4, or, with several "
    "processes, torchrun --nproc-per-node 8 -m findwall run train.py. FINDWALL_DISABLE=1 makes it a plain "
    "python.",
)
@click.option("-m", "is_module", is_flag=True, help="TARGET is a module, as in python -m.")
@click.option("--wait", type=click.IntRange(min=0), help="Warm-up steps to skip (default: a test decides).")
@click.option(
    "--steps", type=click.IntRange(min=1), help="Steps to time without the profiler (default: 30 or 10 s)."
)
@click.option(
    "--trace-steps", type=click.IntRange(min=1), default=3, show_default=True, help="Steps to trace."
)
@click.option(
    "--trace-ranks",
    metavar="RANKS",
    callback=_ranks,
    help="Which ranks to trace: all, how many, or which, as in 0,3,8-11 (default: up to 16 all of them, else "
    "some of each machine and those whose timing stands out).",
)
@click.option("--no-trace", is_flag=True, help="Timing and counters only: no profiler in the job.")
@click.option(
    "--memory",
    is_flag=True,
    help="Record for a few more steps what torch's allocator does: what peaks, by kind and line.",
)
@click.option("--stop", is_flag=True, help="End the job once the verdict is there.")
@click.option("--out", metavar="DIR", help="The run folder (default: findwall-runs/<script>-<n>).")
@click.option("--brief", is_flag=True, help="Print only the verdict and what to try.")
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Add a table of the N longest ops and kernels."
)
@click.option(
    "--probe",
    is_flag=True,
    help="Once the job has ended, run its ops as fixes would run them (about 10 s), and predict by that.",
)
@click.option(
    "--apply",
    "fixes",
    metavar="A,B",
    default="",
    help="Make these fixes in the job, without an edit; rank0/applied.json says what each did.",
)
@click.option(  # what `findwall try` shows the gain of an edit with
    "--stand-in", "stand_ins", default="", hidden=True
)
@click.option(  # fixes that the job's own switches make, of which `findwall try` wants the proof
    "--switched", default="", hidden=True
)
@click.option(  # fixes that `findwall try` has switched on and off while the job runs
    "--screen", default="", hidden=True
)
@click.option(  # what a look of `findwall try` leaves out: nobody asks what findwall costs it
    "--until", type=click.Choice(get_args(Last)), hidden=True
)
@click.option("--json", "json_file", metavar="FILE", help="Also write the Diagnosis document here.")
@click.option(
    "--fail-wall",
    "fail_walls",
    metavar="NAME",
    multiple=True,
    help="Exit with 3 if the job ended well and this wall or cause is its verdict. May be repeated. Findings "
    "accepted in .findwall.toml pass.",
)
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    is_module: bool,
    wait: int | None,
    steps: int | None,
    trace_steps: int,
    trace_ranks: str | None,
    no_trace: bool,
    memory: bool,
    stop: bool,
    out: str | None,
    brief: bool,
    top: int | None,
    probe: bool,
    fixes: str,
    stand_ins: str,
    switched: str,
    screen: str,
    until: Last | None,
    json_file: str | None,
    fail_walls: tuple[str, ...],
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Run TARGET with its ARGUMENTS, measure it, and name its wall.

    The job runs in this process as it always does; the verdict is printed on stderr as soon as it is
    known, while the job goes on. The exit code is the job's. With --fail-wall it is 3 where the job would
    leave with 0 and the wall is found.
    """
    report = os.environ.get(REPORT)
    if report and out is None:
        out = str(Path(report).with_name("run"))  # a trial keeps what it was told there, and no folders
    effects = chosen(fixes, stand_ins, switched, screen)
    judge = judge_of(fail_walls, target)
    options = Options(
        wait=wait,
        steps=steps,
        trace_steps=trace_steps,
        trace_ranks=trace_ranks,
        trace=not no_trace,
        memory=memory,
        stop=stop,
        out=out,
        json=_whole_path(json_file),
        brief=brief,
        top=top,
        verdict=not report,  # a trial reads the figures, not the words
        last=until or ("timing" if report else "control"),
        apply=tuple(effects.names),
        probe=probe,
    )
    # Before the job's own modules can be found in place of its parts.
    from findwall.report.words import spoken

    launch(target, list(arguments), is_module, options, effects, judge, spoken)


def _whole_path(json_file: str | None) -> str | None:
    """The job may change its folder."""
    if json_file == "-":
        raise InputError(
            "--json - is refused: standard output is the job's own",
            "Name a file (--json diagnosis.json); or, after the job, `findwall read --json -`.",
        )
    return str(Path(json_file).absolute()) if json_file is not None else None


def judge_of(fail_walls: tuple[str, ...], script: str) -> Judge | None:
    """What decides on the exit code once the job has ended well, where a person asks for that."""
    if not fail_walls:
        return None
    from findwall.cli.around.gate import WallGate

    gate = WallGate(fail_walls, script)

    def judge(folder: Path | None) -> tuple[int, str]:
        judged = gate.of_run(folder)
        return judged.code, judged.said

    return judge


def chosen(words: str, stand_ins: str = "", switched: str = "", screen: str = "") -> Effects:
    """The fixes that a person named, if each can be made without an edit; and those that a trial shows by a
    stand-in; `switched`: those that the job makes itself, and is only watched for; `screen`: those that are
    switched on and off once it has warmed up."""
    if not any(one.strip() for one in (words, stand_ins, switched, screen)):
        return Effects({})
    from findwall.fixes import all_fixes  # the job does without them

    known = all_fixes()
    made = named(words, {name: fix.apply for name, fix in known.items() if fix.apply is not None})
    shown = named(stand_ins, {name: fix.stand_in for name, fix in known.items() if fix.stand_in is not None})
    seen = named(switched, {name: fix.shows for name, fix in known.items() if fix.shows is not None})
    live = named(screen, {name: fix.live for name, fix in known.items() if fix.live is not None})
    numbers = made[1] | shown[1] | seen[1] | live[1]
    return Effects(made[0] | shown[0] | seen[0], numbers, live[0])


def named(words: str, able: Mapping[str, Apply]) -> tuple[dict[str, Apply], dict[str, int | None]]:
    """The fixes among those that can be made, and the numbers that came with them."""
    from findwall.fixes.what_if import parse

    numbers = parse(words) if words.strip() else {}
    for name in numbers:
        if name not in able:
            raise InputError(
                f"{name} cannot be made from outside: it needs an edit",
                f"`findwall explain {name}` says which. These can be applied: {', '.join(able)}.",
            )
    return {name: able[name] for name in numbers}, numbers
