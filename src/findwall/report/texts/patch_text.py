"""The patch, as a person reads it at the end of `try`: short; what it does not hold, as lines to add."""

from __future__ import annotations

import textwrap
import unicodedata

from findwall.model.patch import Patch

WIDTH = 80
MOST_LINES = 60  # of a diff on the screen; the file has all. Chosen by hand.


def to_keep(name: str, how: str, patch: Patch | None) -> list[str]:
    """One fix: it is in the patch, or what to do by hand. `how`: as prescribed, or its bare name."""
    why_not = patch.left.get(name, "") if patch is not None else ""
    if patch is not None and name in patch.made:
        text = f"{name}: in the patch below. {patch.remarks.get(name, '')}"
    elif why_not.endswith("."):  # an instruction in itself
        text = f"{name}: {why_not}"
    elif why_not and how == name:
        text = f"{name}: no patch, because {why_not}."
    else:
        text = how
    return textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")


def diff_text(patch: Patch | None) -> str:
    if patch is None or not patch.diff:
        return ""
    lines = [_printable(line) for line in patch.diff.rstrip("\n").split("\n")]
    more = len(lines) - MOST_LINES
    if more > 0:
        lines = [*lines[:MOST_LINES], f"… {more} more lines: --write-patch FILE writes them all"]
    return "\n".join(("", *lines)) + "\n"


def _printable(line: str) -> str:
    """No escapes or control characters; blanks and tabs as they are."""
    kept = (one for one in line if one == "\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co"))
    return "".join(kept)
