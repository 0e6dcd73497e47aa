"""Microseconds as text to nanoseconds as integers: no float on the way, so nothing is rounded.

`1712195495519689.047` has 19 significant digits; a float64 keeps 16.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import msgspec
import numpy as np

from findwall.model.events import U8, Bool
from findwall.model.intervals import I64
from findwall.units import NS_PER_US

LIMIT_NS = 4 * 10**18  # beyond the year 2090 nothing is a time; also keeps start + duration in int64
_MOST_DIGITS = 16  # of whole microseconds below that limit
_FRACTION = 4  # characters of a fraction in nanoseconds: the point and three digits
_ROUNDED_UP_FROM = 5  # the first digit below a nanosecond
_NUMBER = re.compile(rb'("?)(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\1')  # also as text, as some writers do
_POWERS = np.array([0, 1, *(10**k for k in range(1, _MOST_DIGITS + 3))], np.int64)  # index: exponent + 4


def to_nanoseconds(texts: Sequence[msgspec.Raw]) -> tuple[I64, Bool]:
    """The times, and which of them could be read."""
    if not texts:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    lines = b"\n".join(texts) + b"\n"
    if lines.translate(None, b"0123456789.\n"):
        return _with_odd_ones(texts)
    return _plain(lines)


def _plain(lines: bytes) -> tuple[I64, Bool]:
    """Digits with at most one point each, one a line."""
    letters = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    dots = np.flatnonzero(letters == ord("."))
    whole = ends - starts - (0 if len(dots) == 0 else _FRACTION)
    if whole.min() > 0 and whole.max() <= _MOST_DIGITS:
        everywhere = np.ones(len(ends), np.bool_)
        if len(dots) == 0:
            microseconds = _digits(lines)
            if microseconds.max() < LIMIT_NS // NS_PER_US:
                return microseconds * NS_PER_US, everywhere
        elif len(dots) == len(ends) and (ends - dots == _FRACTION).all():
            nanoseconds = _digits(lines.translate(None, b"."))
            if nanoseconds.max() < LIMIT_NS:
                return nanoseconds, everywhere
    return _by_place(letters, starts, ends, dots)


def _digits(lines: bytes) -> I64:
    parsed: I64 = np.fromstring(lines, np.int64, sep="\n")
    return parsed


def _by_place(letters: U8, starts: I64, ends: I64, dots: I64) -> tuple[I64, Bool]:
    """Any mixture of lengths: each digit times the power its place has, summed a line."""
    count = len(ends)
    line_of_dot = np.searchsorted(ends, dots)
    point = ends.copy()
    point[line_of_dot] = dots
    single = np.bincount(line_of_dot, minlength=count) <= 1
    whole = point - starts
    exponent = np.repeat(point, ends + 1 - starts) - np.arange(len(letters))
    exponent -= exponent > 0
    digit = letters.astype(np.int64) - ord("0")
    digit[(digit < 0) | (digit > 9)] = 0
    places = np.clip(exponent + _FRACTION, 0, len(_POWERS) - 1)
    value = np.add.reduceat(digit * _POWERS[places], starts)
    value += np.add.reduceat((exponent == -_FRACTION) & (digit >= _ROUNDED_UP_FROM), starts).astype(np.int64)
    fits = (whole < _MOST_DIGITS) | ((whole == _MOST_DIGITS) & (letters[starts] < ord("4")))
    valid = single & (whole > 0) & fits & (ends - point != 1)
    return np.where(valid, value, 0), valid


def _with_odd_ones(texts: Sequence[msgspec.Raw]) -> tuple[I64, Bool]:
    """Signs, exponents, quotes, null: one at a time, exactly."""
    values, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for index, text in enumerate(texts):
        parsed = _exactly(bytes(text))
        if parsed is not None:
            values[index], valid[index] = parsed, True
    return values, valid


def _exactly(text: bytes) -> int | None:
    number = _NUMBER.fullmatch(text)
    if number is None:
        return None
    try:
        microseconds = Decimal(number[2].decode("ascii"))
        if abs(microseconds) * NS_PER_US >= LIMIT_NS:
            return None
        return int((microseconds * NS_PER_US).to_integral_value(ROUND_HALF_UP))
    except ArithmeticError:  # an exponent beyond even decimals
        return None
