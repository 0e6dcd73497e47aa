"""The patch that makes a fix permanent: edits of the job's own lines, as text, shown as a unified diff.

Python's parser says where an expression begins and ends; the text around it stays as its author wrote it.
What cannot be done safely is refused with `NoPatch`.
"""

from __future__ import annotations


class NoPatch(Exception):  # noqa: N818 - no error: an answer
    """There is no safe edit; it says why."""
