"""Names from a trace, made fit to print: harmless and short."""

from __future__ import annotations

import re
import unicodedata

# CSI and OSC sequences whole, so that no "[31m" is left behind; then any lone control character.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b.?")
_LONGEST_NAME = 4000  # characters: no name is longer for a reason; what follows stays cheap

# Template arguments that say what a kernel computes, and the wrappers around them that do not.
_TELLING = re.compile(r"functor|kernel|impl|ops?$|gemm|conv|epilogue|cutlass|launch_", re.IGNORECASE)
_WRAPPERS = re.compile(
    r"gpu_kernel_impl|^[AB]?(Unary|Binary)Functor|^ReduceOp$|(_traits|_t|Type|Params)$|^operator$|^func_wrapper"
)


def clean(text: str) -> str:
    """One line of printable text: no escapes, control or bidirectional characters, no lone surrogates."""
    text = _ESCAPES.sub("", text[:_LONGEST_NAME])
    text = "".join(" " if character.isspace() else character for character in text)
    kept = (
        character for character in text if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co")
    )
    return " ".join("".join(kept).split())


def kernel_name(name: str) -> str:
    """A kernel's name without return type, arguments, namespaces and template noise.

    Of the template arguments one is kept: what an elementwise kernel computes, its functor.
    """
    name = clean(name)
    if not set(name) & set("(<") or name.startswith(("Memcpy", "Memset")):
        return name  # cuBLAS, Triton, copies: already as short as they come
    path, arguments = _signature(name.replace("(anonymous namespace)::", ""))
    base = _last_part(path)
    telling = _telling_argument(arguments)
    if telling and base in ("Kernel", "Kernel2"):  # CUTLASS: the wrapper is always called so
        return telling
    return f"{base}<{telling}>" if telling else base or name


def brief(text: str, limit: int) -> str:
    """Clean text of at most `limit` characters, cut at its end."""
    text = clean(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def fit(text: str, width: int) -> str:
    """The text cut in its middle to `width` characters: both ends of a name tell it apart."""
    if len(text) <= width:
        return text
    kept = max(width - 1, 0)
    head = (kept + 1) // 2
    return text[:head] + "…" + text[len(text) - (kept - head) :]


def _signature(name: str) -> tuple[str, str]:
    """The function's path and its template arguments, out of `type path<template>(arguments)`."""
    start, opening, depth, parentheses = 0, -1, 0, 0
    for index, character in enumerate(name):
        if character == "(" and depth == 0:
            return _cut(name[start:index], opening - start)
        if character in "()":
            parentheses += 1 if character == "(" else -1
        elif character in "<>" and not parentheses:  # `(a > b)` among template arguments is no bracket
            opening = index if depth == 0 else opening
            depth += 1 if character == "<" else -1
        elif character == " " and depth == 0:
            start, opening = index + 1, -1  # all before it was the return type
    return _cut(name[start:], opening - start)


def _cut(text: str, opening: int) -> tuple[str, str]:
    return (text[:opening], text[opening + 1 :]) if opening >= 0 else (text, "")


def _last_part(path: str) -> str:
    return path.strip().rpartition("::")[2]


def _telling_argument(arguments: str) -> str:
    """The first template argument whose own name says what is computed."""
    parts = [_last_part(path) for path in re.findall(r"[A-Za-z_][\w:]*", arguments)]
    return next((part for part in parts if _TELLING.search(part) and not _WRAPPERS.search(part)), "")
