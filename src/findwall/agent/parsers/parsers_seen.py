"""The options of a job's program, seen while it reads its command line, where a look of `try` asks for it.

argparse tells them once it has read the words: what is built on it (`HfArgumentParser`, Lightning's command
line) comes by the same function. click tells them as it takes its own apart, absl when it is asked for. Of a
script that sets its globals from `--name=value` the file itself tells them. It is a look: nothing of the
parser is changed or called that the job does not call, and whatever goes wrong in it, the job has its own.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from contextlib import suppress
from typing import Any

from findwall.agent.importhook import when_imported
from findwall.agent.parsers.declared_options import of_absl, of_argparse, of_click
from findwall.agent.parsers.script_globals import of_script
from findwall.apply.registry import REGISTRY, Call
from findwall.model.arms import LOOK
from findwall.model.switches.program_options import Option

BY = "parsers"
WAITS = "the job may read its command line late"
MOST = 1024  # options that are kept. Chosen by hand.
READS = "_parse_known_args"  # below all of argparse's own ways, and those of what is built on it


class ParsersSeen:
    """Notes options until the process ends. The latest declaration of a flag counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Option] = {}

    @classmethod
    def of_environment(cls) -> ParsersSeen | None:
        if not os.environ.get(LOOK):
            return None
        seen = cls()
        with suppress(Exception):  # fail open: a job whose options nobody knows is one without switches
            if hasattr(argparse.ArgumentParser, READS):
                REGISTRY.wrap(BY, argparse.ArgumentParser, READS, seen._of_argparse)
            when_imported("click", seen._watch_click, BY, WAITS)
            when_imported("absl.flags", seen._watch_absl, BY, WAITS)
        return seen

    @property
    def options(self) -> list[Option]:
        with suppress(Exception):  # fail open
            self._keep(of_script(sys.modules["__main__"], sys.argv[1:]))
        return list(self._found.values())

    def _keep(self, options: list[Option]) -> None:
        for one in options:
            if len(self._found) < MOST or one.flags in self._found:
                self._found[one.flags] = one

    def _of_argparse(self, original: Call) -> Call:
        @functools.wraps(original)
        def read(parser: Any, *args: Any, **kwargs: Any) -> Any:
            given = _plain_words(args[0] if args else kwargs.get("args", kwargs.get("arg_strings")))
            result = original(parser, *args, **kwargs)
            with suppress(Exception):  # fail open
                if _is_of_command_line(given):
                    self._keep(of_argparse(parser, result[0]))
            return result

        return read

    def _watch_click(self, click: Any) -> None:
        with suppress(Exception):  # fail open
            REGISTRY.wrap(BY, click.Command, "parse_args", self._of_click)

    def _of_click(self, original: Call) -> Call:
        @functools.wraps(original)
        def read(command: Any, context: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
            given = _plain_words(args)
            result = original(command, context, args, *rest, **kwargs)
            with suppress(Exception):  # fail open
                if _is_of_command_line(given):
                    self._keep(of_click(command, context))
            return result

        return read

    def _watch_absl(self, flags: Any) -> None:
        with suppress(Exception):  # fail open
            REGISTRY.wrap(BY, flags.FlagValues, "__call__", self._of_absl)

    def _of_absl(self, original: Call) -> Call:
        @functools.wraps(original)
        def read(values: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(values, *args, **kwargs)
            with suppress(Exception):  # fail open
                self._keep(of_absl(values))
            return result

        return read


def _plain_words(given: Any) -> list[str] | None:
    """As they are now: a parser takes from its list while it reads."""
    return list(given) if isinstance(given, list | tuple) else None


def _is_of_command_line(given: list[str] | None) -> bool:
    """Whether these words were typed, and no others: a library may read words of its own with a parser, to
    which none of ours would come."""
    typed = sys.argv[1:]
    if given is None or (typed and not given):
        return False
    left = iter(typed)
    return all(word in left for word in given)
