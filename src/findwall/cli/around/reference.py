"""Every command with its options, as Markdown: what `--help` says, in one page of the documentation."""

from __future__ import annotations

import inspect

import click

OPENING = """# Commands

What `findwall --help` says of each command, which is where this page is made from.

Exit codes: 0 done; 1 the job or the analysis failed; 2 wrong usage or unreadable input; 3 a gate such as
`--fail-slower` was hit. `run` returns the job's own exit code. `--debug` shows tracebacks."""
EVERYWHERE = ("help", "debug")
VALUES = {"integer range": "N", "integer": "N", "float range": "X", "float": "X", "directory": "FOLDER"}


def to_markdown(group: click.Group) -> str:
    """The commands of a group, in alphabetical order."""
    context = click.Context(group, info_name="findwall")
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    blocks = [OPENING]
    for name, command in found.items():
        if command is not None:
            blocks += _command(click.Context(command, info_name=name, parent=context))
    return "\n\n".join(blocks) + "\n"


def _command(context: click.Context) -> list[str]:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    texts = [_plain(inspect.cleandoc(text)) for text in (command.help, command.epilog) if text]
    options = [
        one
        for one in command.params
        if isinstance(one, click.Option) and not one.hidden and one.name not in EVERYWHERE
    ]
    rows = [f"| `{_cell(_spelled(one))}` | {_cell(_meant(one))} |" for one in options]
    table = ["\n".join(["| option | |", "|---|---|", *rows])] if rows else []
    return [f"## {context.info_name}", f"    findwall {context.info_name} {usage}", *texts, *table]


def _spelled(option: click.Option) -> str:
    """As it is typed; not by click's own words for types, which differ between its versions."""
    names = ", ".join(option.opts) + "".join(f" / {other}" for other in option.secondary_opts)
    return names if option.is_flag else f"{names} {option.metavar or VALUES.get(option.type.name, 'TEXT')}"


def _meant(option: click.Option) -> str:
    default = f" (default: {option.default})" if option.show_default else ""
    return f"{option.help or ''}{default}"


def _plain(text: str) -> str:
    r"""click's mark before a paragraph that keeps its lines (\b): Markdown's is an indent."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        kept = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        paragraphs.append("\n".join(f"    {line}" for line in lines) if kept else paragraph)
    return "\n\n".join(paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")
