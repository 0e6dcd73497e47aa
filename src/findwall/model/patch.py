"""The edits that make a stack of fixes permanent."""

from __future__ import annotations

import msgspec


class Patch(msgspec.Struct, frozen=True):
    """A unified diff of the job's own files, and what it leaves out."""

    diff: str = ""
    root: str = ""  # the folder that its paths begin in
    made: list[str] = []  # fixes that it holds
    left: dict[str, str] = {}  # fixes that it does not, and why
    remarks: dict[str, str] = {}  # of those that it holds: what an edit alone does not do
