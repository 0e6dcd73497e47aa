"""What to do with a block that is not clean: keep every entry that can be kept, count the rest.

An entry's end is proven, not guessed: a piece that stops too early cannot decode, and a piece that
stops at the first place where it does decode is the entry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from findwall.readers.torch_trace.entries import (
    FIELDS_DECODER,
    ONE_DECODER,
    PHASE_OF,
    Args,
    Begin,
    Complete,
    End,
    Entry,
    Instant,
    Label,
    LabelArgs,
    MemoryArgs,
    Unknown,
)

# Everything msgspec raises on text that is not what it was told to expect.
UNDECODABLE = (msgspec.DecodeError, UnicodeError, RecursionError)

BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
# `"key": nan,` outside of strings: a quote inside a string would be escaped.
BARE_NUMBER = re.compile(rb'(?<!\\)("\s*:\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])', re.IGNORECASE)
_POSSIBLE_END = re.compile(rb"\}(?=\s*(?:,\s*(?:\{|\]|\Z)|\]|\Z))")
_SEPARATORS = re.compile(rb"[\s,]*")
_STRING = re.compile(rb'("(?:[^"\\]|\\.)*")', re.DOTALL)
_BARE_WORD = re.compile(rb"[-+]?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole surrogate pair
    rb'|\\u([0-9a-fA-F]{4})|\\["\\/bfnrt]|(\\)'
)
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s,{}\[\]"]+', re.DOTALL)
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]]', re.DOTALL)
TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_CONTROL = re.compile(rb"[\x00-\x1f]")
# Both chosen by hand, not calibrated.
_ENDS_TRIED = 8  # before the braces are counted
_FAILURES_IN_A_ROW = 1000  # before the rest of a block is given up

_CLASSES: dict[str, type[Any]] = {"X": Complete, "i": Instant, "M": Label, "B": Begin, "E": End}
_CLASSES.update({phase: kind for kind, phase in PHASE_OF.items()})
_RECORDS: tuple[type[Any], ...] = (*_CLASSES.values(), Args, MemoryArgs, LabelArgs)
_FIELDS = {record: msgspec.structs.fields(record) for record in _RECORDS}


class Salvage(msgspec.Struct):
    """The entries of a block that was read one by one."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    damaged: Counter[str] = msgspec.field(default_factory=Counter)
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
    position, failures = 0, 0
    while failures < _FAILURES_IN_A_ROW:
        match = _SEPARATORS.match(text, position)
        position = match.end() if match else position
        if position >= len(text):
            return found
        if text[position] == ord("]") and failures == 0:
            found.closed_at = position
            return found
        before = len(found.entries)
        end = _read_one(text, position, found) if text[position] == ord("{") else _skip(text, position, found)
        if end is None:
            return found
        position, failures = end, 0 if len(found.entries) > before else failures + 1
    found.damaged["in a stretch of broken text"] += 1
    return found


def _read_one(text: bytes, start: int, found: Salvage) -> int | None:
    """Take the entry that begins here; returns where it ends, or None if the text ends first."""
    for attempt, match in enumerate(_POSSIBLE_END.finditer(text, start)):
        end: int | None = match.end()
        if attempt == _ENDS_TRIED:
            end = _object_end(text, start)
            if end is None:
                break
        piece = text[start:end]
        try:
            found.entries.append(ONE_DECODER.decode(piece))
            return end
        except UNDECODABLE as error:
            truncated = _is_truncated(error, piece)
        if not truncated or attempt == _ENDS_TRIED:
            mended = mend(piece)
            if attempt < _ENDS_TRIED and _is_truncated(None, mended):
                continue
            return end if _take(found, mended) else _next_start(text, start)
    found.cut_at = start
    return None


def _object_end(text: bytes, start: int) -> int | None:
    """Where the object that begins here ends: the decoder finds out and complains about what follows."""
    try:
        FIELDS_DECODER.decode(memoryview(text)[start:])
    except UNDECODABLE as error:
        trailing = TRAILING.search(str(error))
        if trailing:
            return text.rindex(b"}", start, start + int(trailing[1])) + 1
        return None if "truncated" in str(error) else start + 1
    return len(text.rstrip())


def _take(found: Salvage, piece: bytes) -> bool:
    """Keep what can be kept of one entry."""
    try:
        found.entries.append(ONE_DECODER.decode(piece))
        found.repaired += 1
        return True
    except UNDECODABLE:
        pass
    try:
        entry = _from_fields(FIELDS_DECODER.decode(piece))
    except UNDECODABLE:
        found.damaged["not readable"] += 1
        return False
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
        end = _array_end(text, position)
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


def _array_end(text: bytes, start: int) -> int | None:
    """Where the array that opens here closes, strings left aside."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        token = match.group()
        if token == b"[":
            depth += 1
        elif len(token) == 1:
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def mend(piece: bytes) -> bytes:
    """Make JSON of what some writers leave: bare nan and inf, stray bytes and backslashes."""
    if not piece.isascii():
        piece = piece.decode("utf-8", "replace").encode()
    parts = _STRING.split(piece)  # strings have the odd places
    parts[::2] = [_BARE_WORD.sub(b"null", part) for part in parts[::2]]
    if b"\\" in piece or _CONTROL.search(piece):
        parts[1::2] = [_mended_string(part) for part in parts[1::2]]
    return b"".join(parts)


def _mended_string(text: bytes) -> bytes:
    inner = _ESCAPE.sub(_mended_escape, text[1:-1])
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
    for info in _FIELDS[kind]:
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
        for inner in _FIELDS[nested]:
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
