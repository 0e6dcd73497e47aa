"""Edited files as a unified diff that `git apply` takes."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from findwall.patches import NoPatch
from findwall.patches.edits import FileEdits

_ODD = re.compile(r'[\x00-\x1f\x7f"\\]')
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def root_of(files: Iterable[str]) -> Path:
    """Where the diff applies: the first file's repository; else the current folder, or the file's own."""
    first = Path(os.path.realpath(next(iter(files))))
    for folder in first.parents:
        if (folder / ".git").exists():
            return folder
    here = Path.cwd().resolve()
    return here if here in first.parents else first.parent


def diff_path(file: str, root: Path) -> str:
    path = Path(os.path.realpath(file))
    if root not in path.parents:
        raise NoPatch(f"{path.name} is not in {root}")
    name = path.relative_to(root).as_posix()
    if _ODD.search(name):
        raise NoPatch("the name of the file has characters that a diff cannot hold")
    return name


def to_diff(files: Mapping[str, FileEdits], root: Path) -> str:
    parts = []
    for file, edits in sorted(files.items()):
        source = edits.source
        mark = source.mark.decode("utf-8")
        before, after = mark + source.text, mark + edits.render()
        if before == after:
            continue
        name = diff_path(file, root)
        end = "\t" if " " in name else ""
        lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{end}", f"b/{name}{end}")
        parts += [line if line.endswith("\n") else line + _NO_NEWLINE for line in lines]
    return "".join(parts)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
