"""`findwall compare`: put two runs side by side: what moved, by how much, and whether it is real.

A and B are run folders that `findwall run` wrote, torch.profiler traces, or Diagnosis documents that `--json`
wrote. A is what was, B is what is now. Processes of one job differ, so a small difference takes several runs
a side, four for 5 %: `findwall compare A1 A2 A3 A4 -- B1 B2 B3 B4`. Needs no GPU and no torch.

Exits 3 if --fail-slower is given, and B is slower by more than that, and this is more than chance, and
.findwall.toml does not accept it; else 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from findwall import __version__
from findwall.cli.around.progress import say
from findwall.errors import InputError
from findwall.report.printable_names import clean

if TYPE_CHECKING:
    from findwall.examine.compared import Taken
    from findwall.model.accepted import Accepted
    from findwall.model.comparison import Compared

BETWEEN = "/dev/null/--"  # stands for `--` among the paths: nothing can lie there


class TwoSides(click.Command):
    """A command in which `--` stands between two sides; options may follow it."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        return super().parse_args(context, [BETWEEN if one == "--" else one for one in arguments])

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        return ["[OPTIONS]", "A... [--] B..."]


@click.command("compare", cls=TwoSides, help=__doc__)
@click.argument("paths", metavar="A B", nargs=-1, type=click.Path())
@click.option(
    "--fail-slower",
    metavar="SHARE",
    help="Exit with 3 if B is slower by more than this, as in 3%, and that is real.",
)
@click.option(
    "--json", "json_target", metavar="FILE", help="Write the comparison as JSON; - for stdout only."
)
@click.option("--markdown", "is_markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option("--html", "html_target", metavar="FILE", help="Write the comparison as a page: one HTML file.")
def command(
    paths: tuple[str, ...],
    fail_slower: str | None,
    json_target: str | None,
    is_markdown: bool,
    html_target: str | None,
) -> int:
    from findwall.model.accepted import load

    limit = None if fail_slower is None else share_of(fail_slower)
    before, after = sides(paths)
    accepted = [] if limit is None else load(Path.cwd())  # what is wrong there is said before minutes go by
    from findwall.examine.compared import compare_sides
    from findwall.model.comparison import to_json
    from findwall.report import document
    from findwall.report.page import compared_page

    compared = compare_sides([take(path) for path in before], [take(path) for path in after])
    try:
        if json_target is not None:
            document.put(to_json(compared), json_target)
        if html_target is not None:
            document.save(Path(html_target), compared_page(compared, __version__).encode())
    finally:  # a full disk must not cost a person the answer
        if json_target != "-":
            show(compared, is_markdown)
    return 0 if limit is None else gate(compared, limit, after, accepted)


def sides(paths: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The paths of either side: two of them, or all before and after `--`."""
    hint = "Give two, as in: findwall compare A B; or several a side: findwall compare A1 A2 -- B1 B2"
    if paths.count(BETWEEN) > 1:
        raise InputError("`--` stands between two sides, and was given more than once", hint)
    if BETWEEN in paths:
        at = paths.index(BETWEEN)
        before, after = list(paths[:at]), list(paths[at + 1 :])
        if not before or not after:
            raise InputError(f"there is no path {'before' if not before else 'after'} `--`", hint)
        return before, after
    if len(paths) != 2:
        count = len(paths) or "no"
        raise InputError(f"{count} path{'' if count == 1 else 's'} given, and it takes two sides", hint)
    return [paths[0]], [paths[1]]


def take(path: str) -> Taken:
    """One run, trace or document."""
    from findwall.cli.around.inputs import document_at
    from findwall.cli.around.newest import resolve
    from findwall.examine.compared import Taken

    chosen, which = resolve((path,))
    if which:
        say(which)
    if (found := document_at(Path(chosen[0]))) is not None:
        return Taken(found)
    from findwall import api
    from findwall.cli.around.progress import progress_bar

    with progress_bar("reading") as progress:
        run, examined = api.look(chosen, progress=progress)
    environment = run.environment
    return Taken(
        examined.diagnosis,
        {name: version for name, version in environment.versions.items() if version},
        {found.id: found.sentence for found in environment.findings},
    )


def share_of(text: str) -> float:
    """A share as people write it: 3%."""
    from findwall.model.accepted import share_of as parsed

    found = parsed(text)
    if found is None:
        raise InputError(f"--fail-slower {text} is not a share", "Give percent, as in --fail-slower 3%.")
    return found


def gate(compared: Compared, limit: float, paths: list[str], accepted: list[Accepted]) -> int:
    """The exit code: only a slow-down that is real, and that nobody has accepted, fails."""
    from findwall.cli.around.gate import of_slower
    from findwall.cli.read import script_of
    from findwall.report.texts.comparison_text import signed_share

    step = compared.step
    if step.outcome == "unknown":
        say(f"--fail-slower judged nothing: {clean(step.why)}")
    if step.outcome != "slower" or step.share is None or step.share <= limit:
        return 0
    scripts = {script_of([path]) for path in paths}
    said = f"the step changed by {signed_share(step.share)}, and {signed_share(limit)} is allowed"
    judged = of_slower(step.share, said, scripts.pop() if len(scripts) == 1 else None, accepted)
    say(judged.said)
    return judged.code


def show(compared: Compared, is_markdown: bool) -> None:
    from rich.console import Console

    from findwall.report import stream, terminal
    from findwall.report.texts import comparison_text as words

    if is_markdown:
        stream.say(words.to_markdown(compared))
        return
    width = max(min(Console().width, terminal.WIDEST_LINE), terminal.NARROWEST_LINE)
    stream.say(words.to_text(compared, width))
