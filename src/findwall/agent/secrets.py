"""Secrets on a job's command line are the job's: they are neither kept nor shown.

What a value is can only be guessed, from the name it goes by and from its looks. A guess too many hides a
word in a list of arguments; one too few puts a key on the disk.
"""

from __future__ import annotations

import re

MASK = "***"
# A name with one of these words in it, or with one of the others as its last word.
_STRONG = {
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "apikey",
}
_LAST = {"token", "key", "auth", "authorization", "bearer", "pat", "jwt", "cookie"}
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_ASSIGNED = re.compile(r"([+~-]*[A-Za-z_][\w.@/-]*)([=:])\s*(.+)", re.DOTALL)
# Known forms of keys; then long runs of hexadecimal digits; then long runs of mixed letters and digits.
_LOOKS = re.compile(
    r"\bhf_\w{8,}|\b(?:sk|pk|rk)[-_][\w-]{8,}|\b(?:AKIA|ASIA)[0-9A-Z]{12,}|\bgh[oprsu]_\w{16,}"
    r"|\bgithub_pat_\w{16,}|\bglpat-[\w-]{12,}|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{20,}|\bnvapi-[\w-]{12,}"
    r"|\beyJ[\w-]{8,}(?:\.[\w-]+)*"
    r"|(?<![\w/])[0-9a-fA-F]{32,}(?![\w/])"
    # First whether it is long enough, which is soon known, and only where a run of `=` begins.
    r"|(?<![\w/.+-])(?<!==)(?=[A-Za-z0-9+=]{32})(?=[^\s]*[a-z])(?=[^\s]*[A-Z])(?=[^\s]*[0-9])[A-Za-z0-9+=]{32,}(?![\w/.-])"
)
_AWS_SECRET = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+][A-Za-z0-9/+]{39}")
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def mask_arguments(arguments: list[str]) -> list[str]:
    """A command line, its secrets replaced."""
    masked = []
    named = False  # the last argument was the name of a secret
    for argument in arguments:
        is_name = argument.startswith("-") and "=" not in argument and not named
        if named and not argument.startswith("--"):
            masked.append(MASK)
        elif is_name and _is_secret(argument):
            masked.append(argument)
        else:
            masked.append(_mask_one(argument))
        named = is_name and _is_secret(argument)
    return masked


def mask_text(text: str) -> str:
    """A sentence, with what looks like a secret in it replaced."""
    return _LOOKS.sub(MASK, _IN_ADDRESS.sub(MASK, text))


def _mask_one(argument: str) -> str:
    assigned = _ASSIGNED.fullmatch(argument)
    if assigned is not None and _is_secret(assigned[1]) and not assigned[3].startswith("//"):
        return f"{assigned[1]}{assigned[2]}{MASK}"
    if assigned is not None and assigned[2] == "=":
        return f"{assigned[1]}={_mask_one(assigned[3])}"
    return MASK if _AWS_SECRET.fullmatch(argument) else mask_text(argument)


def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    return bool(words) and (words[-1] in _LAST or not _STRONG.isdisjoint(words))
