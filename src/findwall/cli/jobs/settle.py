"""The command that would measure a job that runs already: its own command line, under `findwall run`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from findwall.agent.secrets import mask_arguments
from findwall.cli.jobs.launchers import launch_of
from findwall.errors import InputError

LONGEST_WORD = 60  # characters: longer values are configurations, or what nobody should read over a shoulder
MOST_WORDS = 24
UNKNOWN_COMMAND = "findwall run YOUR_SCRIPT ITS_ARGUMENTS"
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")


def settling_command(words: Sequence[str], folder: Path | None) -> str:
    """What a person types instead of the command that started the job; secrets masked, long values cut."""
    if len(words) > 1 and Path(words[1]).name in _LAUNCHERS:
        words = words[1:]  # a script that its first line hands to python
    if len(words) < 2:
        return UNKNOWN_COMMAND
    try:
        launch = launch_of(_shown(words))
    except (InputError, OSError):  # python -c, a title that the job gave itself; another user's folders
        return UNKNOWN_COMMAND
    front = "findwall run" if _is_this_python(launch.launcher) else launch.front
    where = f"cd {shlex.quote(str(folder))} && " if folder is not None and folder != Path.cwd() else ""
    return f"{where}{front} {_job(launch.is_module, launch.target, launch.arguments)}"


def _shown(words: Sequence[str]) -> list[str]:
    masked = mask_arguments(list(words))
    cut = [
        word if len(word) <= LONGEST_WORD or at < 2 else f"{word[: LONGEST_WORD - 1]}…"
        for at, word in enumerate(masked)
    ]
    return cut if len(cut) <= MOST_WORDS else [*cut[:MOST_WORDS], "…"]


def _job(is_module: bool, target: str, arguments: Sequence[str]) -> str:
    return shlex.join((*(("-m",) if is_module else ()), target, *arguments))


def _is_this_python(launcher: Sequence[str]) -> bool:
    """Whether a plain `findwall run` starts the same interpreter."""
    if not launcher:
        return True
    try:
        return len(launcher) == 1 and Path(launcher[0]).parent.samefile(Path(sys.executable).parent)
    except OSError:
        return False
