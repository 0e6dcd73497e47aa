"""Options that a job's program takes on its command line."""

from __future__ import annotations

from typing import Literal

import msgspec

OPTIONS_FILE = "options.json"  # in rank0 of the run folder, a list of options
# How an option is given: with a value; alone, for yes or for no; as --x or --no-x; alone or with a value; as
# --name=value only, which sets a global of the script; in a way that no switch has.
Form = Literal["value", "on", "off", "either", "optional", "global", "other"]


class Option(msgspec.Struct, frozen=True):
    """One of them. Values are told as text; None: none, or one that is no plain value."""

    flags: tuple[str, ...]  # as they are typed
    dest: str
    form: Form
    type: str = ""  # what makes a value of the text; of a global the type that it has
    choices: tuple[str, ...] = ()
    default: str | None = None
    value: str | None = None  # in this run
    help: str = ""
