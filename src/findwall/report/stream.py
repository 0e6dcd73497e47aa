"""Text to a stream that may know less than Unicode."""

from __future__ import annotations

import sys

_TO_ASCII = str.maketrans(
    {
        "·": "|",
        "–": "-",
        "—": "-",
        "…": "~",
        "×": "x",
        "µ": "u",
        "≤": "<",
        "≥": ">",
        "’": "'",
        "→": ">",
        "−": "-",
    }
)


def is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").startswith("utf")


def to_ascii(text: str) -> str:
    """The text in ASCII, sign for sign, so that columns stay where they are."""
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")


def say(text: str) -> None:
    """Print text on standard output as it is, or in ASCII where the stream has no more."""
    sys.stdout.write(text if is_unicode(sys.stdout.encoding) else to_ascii(text))
    sys.stdout.flush()
