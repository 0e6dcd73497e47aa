"""The two errors a person can see: each says what happened, then what to do."""

from __future__ import annotations

LONGEST_CHARS = 160


class FindwallError(Exception):
    """The job or the analysis failed (exit code 1)."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def first_line(error: Exception) -> str:
    """Of somebody else's error, which may be long, or say nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:LONGEST_CHARS]


class InputError(FindwallError):
    """Wrong usage or unreadable input (exit code 2)."""

    exit_code = 2
