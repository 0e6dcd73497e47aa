"""The command line: each file here is a command, found by listing them, imported only when called."""

from __future__ import annotations

import ast
import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from findwall import __version__
from findwall.errors import FindwallError

SLIP = 0.75  # of the letters of two words that are alike, at least: difflib's ratio. Chosen by hand.


@dataclass
class Invocation:
    """What every command shares: whether a person asked for tracebacks."""

    debug: bool = False


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and isinstance(context.obj, Invocation):
        context.obj.debug = True


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show tracebacks."
    )


class CommandFolder(click.Group):
    """A group whose commands are the files beside this one: each defines `command`.

    Names and one-line helps are read from the source, so that `--help` loads no command, and with it neither
    numpy nor torch.
    """

    def list_commands(self, _context: click.Context) -> list[str]:
        names = (path.stem for path in Path(__file__).parent.glob("*.py"))
        return sorted(filter(_is_command, names))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if not _is_command(name):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{name}").command
        if not any(parameter.name == "debug" for parameter in command.params):
            command.params.append(_debug_option())
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if arguments and not arguments[0].startswith("-") and not _is_command(arguments[0]):
            context.fail(
                f"No such command '{arguments[0]}'.{_meant(arguments[0], self.list_commands(context))}"
            )
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, _summary(_file(name))) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _is_command(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and _file(name).is_file()


def _file(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.py")


def _summary(file: Path) -> str:
    """The first line of its docstring, without the name of the command where that opens it."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    first = (ast.get_docstring(module) or "").partition("\n")[0]
    return re.sub(r"^`findwall [^`]*`: (.)", lambda found: found[1].upper(), first)


def _meant(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=2)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" To analyse a file: findwall read {name}" if Path(name).exists() else ""


@click.group(
    cls=CommandFolder, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="findwall")
@click.option("--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show tracebacks.")
@click.pass_context
def commands(context: click.Context) -> None:
    """Why a PyTorch job is slow, what to change, and what that is worth."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code. The one place where errors become messages."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    invocation = Invocation()
    try:
        result = commands.main(arguments, prog_name="findwall", standalone_mode=False, obj=invocation)
        _flush()
        return result if isinstance(result, int) else 0
    except FindwallError as error:
        return _complain(error, error.message, error.hint, error.exit_code, invocation)
    except (click.Abort, KeyboardInterrupt):  # click's word for Ctrl-C
        return _interrupted()
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            slips = _mistyped(error.option_name, error.possibilities or [])
            error = click.NoSuchOption(error.option_name, possibilities=slips, ctx=error.ctx)
        return _complain(error, error.format_message(), _where_to_look(error), error.exit_code, invocation)
    except BrokenPipeError:
        return _pipe_closed()
    except Exception as error:  # noqa: BLE001 - a person gets one line, never a traceback they did not ask for
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _complain(error, "the disk is full", "Make room, and run it again.", 1, invocation)
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _complain(error, message, "", 1, invocation, bug=True)


def _complain(
    error: BaseException, message: str, hint: str, code: int, invocation: Invocation, *, bug: bool = False
) -> int:
    from findwall.report.printable_names import clean

    if invocation.debug:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
    line = f"findwall failed: {clean(message)} (this is a bug; --debug shows where)" if bug else ""
    click.echo(line or f"findwall: {clean(message)}", err=True)
    if hint:
        click.echo(f"  {clean(hint)}", err=True)
    return code


def _mistyped(name: str, known: Sequence[str]) -> list[str]:
    """Those that differ by a slip: "--out" is no way to write "--nosuch"."""
    import difflib

    return difflib.get_close_matches(name, known, cutoff=SLIP)


def _where_to_look(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"See '{context.command_path} --help'." if context is not None else ""


def _interrupted() -> int:
    """Die of the signal, as an interrupted python does: shells and schedulers tell that from an exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return 130


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _pipe_closed() -> int:
    """The reader of our output went away (`| head`): nothing to say, and nothing left to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
