"""What is typed to have what a fix does, and the names of fixes that are made so.

Where a fix of a stack is made by a switch of the job's own, its name says so: `tf32 by --tf32 True`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

BY, LEFT_OUT = " by ", "leaving out "


class Switch(msgspec.Struct, frozen=True):
    """What is typed to have what a fix does."""

    fix: str
    words: tuple[str, ...]  # flags, each with its values behind it
    leaves_out: bool = False  # the flag is taken out instead

    @property
    def typed(self) -> str:
        return (LEFT_OUT if self.leaves_out else "") + shlex.join(self.words)


def by_switch(name: str, switch: Switch) -> str:
    """What a fix is called where the job's own switch makes it. `name`: with its number, if it has one."""
    return f"{name}{BY}{switch.typed}"


def is_by_switch(name: str) -> bool:
    return BY in name


def own_name(name: str) -> str:
    """The same fix, made our way."""
    return name.partition(BY)[0]


def typed_of(name: str) -> str:
    return name.partition(BY)[2]


def switched_on(arguments: Sequence[str], stack: Sequence[str]) -> tuple[str, ...]:
    """The job's arguments with all switches of a stack. What was given before for the same flag goes, so that
    the line can be read; of what a parser takes under another name, the last counts."""
    found = list(arguments)
    for name in filter(is_by_switch, stack):
        typed = typed_of(name)
        leaves_out = typed.startswith(LEFT_OUT)
        for flag, *values in _parts(shlex.split(typed.removeprefix(LEFT_OUT))):
            found = _without(found, flag, len(values))
            found += [] if leaves_out else [flag, *values]
    return tuple(found)


def _parts(words: Sequence[str]) -> list[list[str]]:
    """Each flag with its values."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def _without(words: list[str], flag: str, values: int) -> list[str]:
    """`flag`: also one of the form --name=value, which replaces another of its name."""
    name = flag.partition("=")[0]
    other = name.replace("--no-", "--", 1) if name.startswith("--no-") else name.replace("--", "--no-", 1)
    kept: list[str] = []
    skipped = 0
    for word in words:
        if skipped and not word.startswith("--"):
            skipped -= 1
            continue
        skipped = values if word == name else 0
        if word not in (name, other) and not word.startswith(f"{name}="):
            kept.append(word)
    return kept
