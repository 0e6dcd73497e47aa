"""What to do with a block that is not clean: keep every entry that can be kept, count the rest.

An entry's end is proven, not guessed: a piece that stops too early cannot decode, and a piece that
stops at the first place where it does decode is the entry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from findwall.readers.entries import (
    FIELDS_DECODER,
    ONE_DECODER,
    PHASE_OF,
    Begin,
    Complete,
    End,
    Entry,
    Instant,
    Label,
    Unknown,
)

# Everything msgspec raises on text that is not what it was told to expect.
UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
# `"key": nan,` outside of strings: a quote inside a string would be escaped.
BARE_NUMBER = re.compile(rb'(?<!\\)("\s*:\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])', re.IGNORECASE)
_POSSIBLE_END = re.compile(rb"\}(?=\s*(?:,\s*\{|,?\s*\]|,?\s*\Z))")
_SEPARATORS = re.compile(rb"[\s,]*")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL)
_BRACE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole surrogate pair
    rb'|\\u([0-9a-fA-F]{4})|\\["\\/bfnrt]|(\\)'
)
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s,{}\[\]"]+', re.DOTALL)
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]]', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_GUESSES = 8  # ends tried before the braces are counted

_CLASSES: dict[str, type[Any]] = {"X": Complete, "i": Instant, "M": Label, "B": Begin, "E": End}
_CLASSES.update({phase: kind for kind, phase in PHASE_OF.items()})


@dataclass(slots=True)
class Salvage:
    """The entries of a block that was read one by one."""

    entries: list[Entry] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    closed_at: int | None = None  # where the array of events ended
    cut_at: int | None = None  # where an entry begins that this text does not finish


def read_each(pieces: Iterable[Raw]) -> Salvage:
    """Entries already told apart, but not all of them of the right types."""
    found = Salvage()
    for piece in pieces:
        try:
            found.entries.append(ONE_DECODER.decode(piece))
        except UNDECODABLE:
            _take(found, bytes(piece))
    return found


def walk(text: bytes) -> Salvage:
    """Entries one after the other through text that does not decode as a whole."""
    found = Salvage()
    position, trusted = 0, True
    while True:
        match = _SEPARATORS.match(text, position)
        position = match.end() if match else position
        if position >= len(text):
            return found
        if text[position] == ord("]") and trusted:
            found.closed_at = position
            return found
        before = len(found.entries)
        end = _read_one(text, position, found) if text[position] == ord("{") else _skip(text, position, found)
        if end is None:
            return found
        position, trusted = end, len(found.entries) > before


def _read_one(text: bytes, start: int, found: Salvage) -> int | None:
    """Take the entry that begins here; returns where it ends, or None if the text ends first."""
    for attempt, match in enumerate(_POSSIBLE_END.finditer(text, start)):
        end = match.end()
        if attempt == _GUESSES:
            counted = _closing(text, start, _BRACE, b"{")
            if counted is None:
                break
            end = counted
        piece = text[start:end]
        try:
            found.entries.append(ONE_DECODER.decode(piece))
            return end
        except UNDECODABLE as error:
            truncated = _is_truncated(error, piece)
        if not truncated or attempt == _GUESSES:
            mended = mend(piece)
            if _is_truncated(None, mended) and attempt < _GUESSES:
                continue
            if _take(found, mended):
                return end
            return _next_start(text, start)
    found.cut_at = start
    return None


def _take(found: Salvage, piece: bytes) -> bool:
    """Keep what can be kept of one entry."""
    try:
        fields = FIELDS_DECODER.decode(piece)
    except UNDECODABLE:
        found.damaged["not readable"] += 1
        return False
    entry = _from_fields(fields)
    if entry is None:
        found.damaged["no phase"] += 1
        return False
    found.entries.append(entry)
    found.repaired += 1
    return True


def _skip(text: bytes, position: int, found: Salvage) -> int:
    """Something that is no entry at all."""
    found.damaged["not an event"] += 1
    value = _VALUE.match(text, position)
    if value:
        return value.end()
    if text[position] == ord("["):
        end = _closing(text, position, _BRACKET, b"[")
        if end is not None:
            return end
    following = text.find(b"{", position)
    return len(text) if following < 0 else following


def _next_start(text: bytes, start: int) -> int:
    match = BOUNDARY.search(text, start + 1)
    if match:
        return match.end()
    last = _POSSIBLE_END.search(text, start)
    return last.end() if last else len(text)


def _is_truncated(error: BaseException | None, piece: bytes) -> bool:
    """Would more text help? A type error may hide that the piece is incomplete: look again."""
    if error is None or isinstance(error, msgspec.ValidationError):
        try:
            FIELDS_DECODER.decode(piece)
            return False
        except UNDECODABLE as untyped:
            error = untyped
    return "truncated" in str(error)


def _closing(text: bytes, start: int, tokens: re.Pattern[bytes], opener: bytes) -> int | None:
    """Where what opens here closes, strings left aside."""
    depth = 0
    for match in tokens.finditer(text, start):
        token = match.group()
        if token == opener:
            depth += 1
        elif len(token) == 1:
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def mend(piece: bytes) -> bytes:
    """Make JSON of what some writers leave: bare nan and inf, stray bytes and backslashes."""
    return _TOKEN.sub(_mended_token, piece.decode("utf-8", "replace").encode())


def _mended_token(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if not token.startswith(b'"'):
        return b"null"
    inner = _ESCAPE.sub(_mended_escape, token[1:-1])
    return b'"%b"' % _CONTROL.sub(lambda found: b"\\u%04x" % found.group()[0], inner)


def _mended_escape(match: re.Match[bytes]) -> bytes:
    code, lone_backslash = match.groups()
    if lone_backslash:
        return rb"\\"
    is_half = code is not None and code[:1] in b"dD" and code[1:2] in b"89abcdefABCDEF"
    return rb"\ufffd" if is_half else match.group()


def _from_fields(fields: dict[str, Raw]) -> Entry | None:
    """An entry from its members, leaving out those of the wrong type."""
    phase = _typed(fields.get("ph"), str)
    if phase is None:
        return None
    kind = _CLASSES.get(phase, Unknown)
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(kind):
        raw = fields.get(info.encode_name)
        if raw is not None:
            values.update(_member(info, raw))
    entry: Entry = kind(**values)
    return entry


def _member(info: msgspec.structs.FieldInfo, raw: Raw) -> dict[str, Any]:
    if info.name == "args":
        nested = next(option for option in info.type.__args__ if option is not type(None))
        members = _typed(raw, dict[str, Raw])
        if members is None:
            return {}
        fitting: dict[str, Any] = {}
        for inner in msgspec.structs.fields(nested):
            if inner.encode_name in members:
                fitting.update(_member(inner, members[inner.encode_name]))
        return {"args": nested(**fitting)}
    value = Raw(bytes(raw)) if info.type is Raw else _typed(raw, info.type)
    return {} if value is None else {info.name: value}


def _typed(raw: Raw | None, kind: Any) -> Any:
    """The value if it is, or plainly stands for, one of this type ("5" for 5)."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except UNDECODABLE:
        return None
