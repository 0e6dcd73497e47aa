"""Options of a program are seen while it reads its command line, and it notices nothing."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import click
import pytest

import warm
from findwall.agent.parsers import parsers_seen
from findwall.agent.parsers.declared_options import of_absl, of_argparse, of_click
from findwall.agent.parsers.parsers_seen import READS, ParsersSeen
from findwall.apply.registry import REGISTRY
from findwall.cli.jobs.looking import declared
from findwall.model.arms import LOOK
from findwall.model.switches.program_options import OPTIONS_FILE, Option

JOB = """
import argparse, sys
parser = argparse.ArgumentParser(prog="job.py")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=False, help="mixed precision")
parser.add_argument("--api-key", default="x")
args = parser.parse_args()
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(args.steps):
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv(LOOK, str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["job.py", "--lr", "0.1"])
    found = ParsersSeen.of_environment()
    assert found is not None
    yield found
    REGISTRY.job_ended()
    assert not hasattr(getattr(ArgumentParser, READS), "__wrapped__")


def parser_of(*flags: str, **how: Any) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument(*(flags or ("--x",)), **how)
    return parser


def test_a_look_alone_sees_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOOK, raising=False)
    assert ParsersSeen.of_environment() is None


def test_options_are_told_as_they_are_declared(seen: ParsersSeen) -> None:
    parser = parser_of("-w", "--workers", type=int, default=0, choices=range(3), help="of the loader")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--hidden", help=argparse.SUPPRESS, default=object())
    parser.add_argument("file", nargs="?")
    assert parser.parse_args(["--lr", "0.1"]).lr == 0.1
    assert seen.options == [
        Option(("--lr",), "lr", "value", "float", default="1.0", value="0.1"),
        Option(("-w", "--workers"), "workers", "value", "int", ("0", "1", "2"), "0", "0", "of the loader"),
        Option(("--amp",), "amp", "on", default="False", value="False"),
        Option(("--hidden",), "hidden", "value"),
    ]


def test_words_that_nobody_typed_are_no_command_line(seen: ParsersSeen) -> None:
    parser_of().parse_args(["--lr", "7"])
    parser_of().parse_args([])
    assert seen.options == []
    parser_of().parse_known_args(["--lr", "0.1"])
    assert [one.dest for one in seen.options] == ["lr", "x"]


def test_what_no_switch_can_follow_has_none(seen: ParsersSeen) -> None:
    parser = parser_of()
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.parse_args(["--lr", "0.1"])
    assert seen.options == []


def test_errors_and_help_are_those_of_the_parser(
    seen: ParsersSeen, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(argparse.ArgumentError, match="invalid float"):
        parser_of().parse_args(["--lr", "much"])
    strict = ArgumentParser(prog="job.py")
    strict.add_argument("--lr", required=True)
    for words, code, said in ((["--help"], 0, "usage: job.py"), ([], 2, "required: --lr")):
        with pytest.raises(SystemExit) as left:
            strict.parse_args(words)
        out = capsys.readouterr()
        assert left.value.code == code and said in out.out + out.err
    assert seen.options == []


def test_a_look_that_fails_is_not_noticed(seen: ParsersSeen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers_seen, "of_argparse", lambda *_: 1 / 0)
    assert parser_of().parse_args(["--lr", "0.1"]).lr == 0.1
    monkeypatch.setitem(sys.modules, "__main__", None)
    assert seen.options == []


def test_one_option_that_cannot_be_told_leaves_the_others() -> None:
    parser = parser_of()
    parser._actions[-1].dest = property()  # type: ignore[assignment]
    parser._actions[-1].option_strings = 7  # type: ignore[assignment]
    assert [one.dest for one in of_argparse(parser, argparse.Namespace(lr=2))] == ["lr"]


def test_what_is_built_on_argparse_comes_by_the_same_function(seen: ParsersSeen) -> None:
    class Own(ArgumentParser):
        """As jsonargparse, which has its own way around it."""

        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            return self._parse_known_args(args=args, namespace=argparse.Namespace())  # type: ignore[call-arg]

    parser = ArgumentParser()
    commands = parser.add_subparsers()
    commands.add_parser("fit").add_argument("--amp", action="store_true")
    sys.argv[1:] = ["fit", "--amp"]
    parser.parse_args()
    assert [(one.dest, one.value) for one in seen.options] == [("amp", "True")]
    assert READS in vars(ArgumentParser) and hasattr(Own, READS)


def test_click_tells_its_options() -> None:
    @click.command()
    @click.option("--workers", type=int, default=0, help="of the loader")
    @click.option("--amp/--no-amp", default=False)
    @click.option("--dtype", type=click.Choice(["fp32", "bf16"]), default="fp32")
    @click.option("--tag", multiple=True)
    def train(**_: object) -> None:
        pass

    context = train.make_context("train", ["--workers", "2"])
    assert [(one.flags, one.form, one.choices, one.value) for one in of_click(train, context)] == [
        (("--workers",), "value", (), "2"),
        (("--amp",), "either", (), "False"),
        (("--dtype",), "value", ("fp32", "bf16"), "fp32"),
        (("--tag",), "other", (), None),
    ]
    assert of_click(click.Group("all", {"train": train}), context) == []


class Flag:
    """As one of absl's."""

    parser = None
    default, value, help = False, True, "use amp"

    def flag_type(self) -> str:
        return "bool"


def test_absl_tells_its_flags() -> None:
    wanted = Option(("--amp",), "amp", "on", "bool", default="False", value="True", help="use amp")
    assert of_absl({"amp": Flag(), "broken": object()}) == [wanted]


@pytest.mark.parametrize("look", [True, False])
def test_a_job_that_is_looked_at_tells_its_options(tmp_path: Path, look: bool) -> None:
    (tmp_path / "job.py").write_text(JOB)
    typed = ["--no-amp", "--api-key", "hunter2hunter2"]
    out, own = tmp_path / "out", tmp_path / "own"
    words = ["-m", "findwall", "run", "--no-trace", "--out", str(out), "job.py", *typed]
    env = {**os.environ, **({LOOK: str(own)} if look else {})}
    subprocess.run(warm.command(*words), check=True, cwd=tmp_path, env=env, capture_output=True, timeout=240)
    assert (out / "rank0" / OPTIONS_FILE).exists() == look
    found = {one.dest: one for one in declared(out)}
    assert set(found) == ({"steps", "amp", "api_key"} if look else set())
    if look:
        assert found["amp"].form == "either" and found["amp"].value == "False"
        assert "hunter2" not in (out / "rank0" / OPTIONS_FILE).read_text()
        assert json.loads((out / "rank0" / OPTIONS_FILE).read_text())[0]["dest"] == "steps"
