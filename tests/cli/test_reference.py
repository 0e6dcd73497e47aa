from __future__ import annotations

import click

from findwall.cli import commands
from findwall.cli.around.reference import to_markdown


def test_every_command_and_every_option_is_there() -> None:
    text = to_markdown(commands)
    context = click.Context(commands)
    for name in commands.list_commands(context):
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        command = commands.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in ("help", "debug"):
                assert (f"| `{option.opts[0]}" in section) != option.hidden, option.opts


def test_what_click_keeps_in_lines_is_kept_and_signs_of_tables_stay_text() -> None:
    @click.command(help="First.\n\n\b\none  a\ntwo  b")
    @click.option("--to", metavar="FILE|-", help="as in <name>")
    def command(to: str) -> None:
        """Not called."""

    text = to_markdown(click.Group("findwall", {"some": command}))
    assert "    one  a\n    two  b" in text
    assert "| `--to FILE\\|-` | as in \\<name> |" in text
