from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from findwall import __version__, cli
from findwall.errors import FindwallError, InputError
from jobs import with_default_signals


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A `read` that raises what the test puts into this list."""
    raised: list[BaseException] = []

    @click.command("read")
    def command() -> None:
        raise raised[0]

    import findwall.cli.read

    monkeypatch.setattr(findwall.cli.read, "command", command)
    return raised


def leave(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    assert isinstance(left.value.code, int)
    return left.value.code


def test_help_lists_the_commands_with_their_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("--help") == 0
    out = capsys.readouterr().out
    assert "read      Name the wall of a job from files that exist already." in out
    assert "progress" not in out  # a file without a command is none
    assert leave() == 0
    assert capsys.readouterr().out == out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("--version") == 0
    assert __version__ in capsys.readouterr().out


def test_every_command_can_be_loaded_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.commands.list_commands(click.Context(cli.commands)):
        assert leave(name, "--help") == 0
        assert "--debug" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            InputError("cannot read x.json", "Is it there?"),
            2,
            "findwall: cannot read x.json\n  Is it there?\n",
        ),
        (FindwallError("the job died"), 1, "findwall: the job died\n"),
        (InputError("bad \x1b[31mname"), 2, "findwall: bad name\n"),
        (
            ZeroDivisionError("oh"),
            1,
            "findwall failed: ZeroDivisionError: oh (this is a bug; --debug shows where)\n",
        ),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    failing.append(error)
    assert leave("read") == code
    captured = capsys.readouterr()
    assert captured.err == said
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [("--debug", "read"), ("read", "--debug")])
def test_debug_shows_the_traceback(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    failing.append(InputError("no"))
    assert leave(*arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("findwall: no\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["raed"], "Did you mean read?"),
        ([str(Path(__file__))], "findwall read"),
        (["read", "x", "--nope"], "No such option"),
        (["read", "x", "--step-ms", "fast"], "not a valid float"),
        (["--nope"], "No such option"),
    ],
)
def test_wrong_usage_is_exit_2_with_a_hint(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leave(*arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "--help'" in err
    assert "Traceback" not in err


MODULE = (
    "import runpy, sys\nsys.argv = ['findwall', 'read']\nrunpy.run_module('findwall', run_name='__main__')"
)
INTERRUPTED = {
    "working": "import findwall.cli\ndef stop(*_, **__): raise KeyboardInterrupt\n"
    "findwall.cli.commands.main = stop",
    "loading": "import sys\nclass Stop:\n    def find_spec(self, name, *_):\n"
    "        if name == 'click': raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())",
}


@pytest.mark.parametrize("when", INTERRUPTED)
def test_ctrl_c_ends_it_by_the_signal_and_without_a_traceback(when: str) -> None:
    """As an interrupted python ends, also while findwall is still loading."""
    command = [sys.executable, "-c", f"{INTERRUPTED[when]}\n{MODULE}"]
    run = subprocess.run(command, capture_output=True, text=True, preexec_fn=with_default_signals)
    assert (run.returncode, run.stderr) == (-signal.SIGINT, "")


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        command = [sys.executable, "-m", "findwall", "explain"]
        run = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True)
    assert run.stderr == ""
    assert run.returncode == 1
