"""The table in what `ncu --csv` prints: where it begins, which shape it has, and that it is whole.

Nsight Compute writes two shapes. Long: a row a metric (`--page details`, `--metrics`), with rules between
them. Wide: a row a kernel, a column a metric, and a row of units below the header (`--page raw`). Before it,
after it and between rows may stand what the tool and the program printed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from findwall.errors import InputError

HEADER = re.compile(rb'(?m)^(?:\xef\xbb\xbf)?"?ID"?,"?Process ID"?,[^\n]*"?Kernel Name"?')
# What begins a row: the number of a kernel, or nothing in the row of units.
ROW = re.compile(r'"\d*"\s*,|\d*\s*,')
SUMMARY = (b"Invocations", b"Average")  # columns of a table over launches
SUMMARY_LINES = 200  # of a file: its header is among them
SPOKEN = (b"==PROF==", b"==ERROR==", b"==WARNING==")  # how a line of the tool itself begins
NOT_IN_A_HEADER = re.compile(rb"[{}\[\]:\0]")  # but in JSON, or in no text
# Figures of a locale whose comma is the decimal sign: Nsight Compute writes them where the machine is set so.
COMMA_IS_DECIMAL = re.compile(
    rb'"-?(?:\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:\.\d{3})+,\d+|0,\d+|\d+,(?:\d{1,2}|\d{4,}))"'
)
LOCALE_TEXT = 4 << 20  # bytes of a text that are searched for signs of what it is
LONGEST_CELL = 1 << 20  # characters: a kernel's name is tens of thousands at most
AGAIN = "Export it again: ncu --import FILE.ncu-rep --csv --page raw > FILE.csv"


def looks_like_a_table(text: bytes) -> bool:
    """What Nsight Compute printed, or some other table: whoever reads it says what is wrong with it."""
    if HEADER.search(text) or text.startswith(SPOKEN) or _is_summary(text):
        return True
    first, second = [*text.lstrip().splitlines(), b"", b""][:2]
    commas = first.count(b",")
    return 0 < commas == second.count(b",") and not NOT_IN_A_HEADER.search(first)


def _is_summary(text: bytes) -> bool:
    lines = text[:LOCALE_TEXT].splitlines()[:SUMMARY_LINES]
    return any(b"Kernel Name" in line and any(word in line for word in SUMMARY) for line in lines)


class Table(msgspec.Struct, frozen=True):
    """Header and rows as text. `units`: of the wide shape, by column."""

    header: list[str]
    units: list[str] | None
    rows: list[list[str]]
    chatter: int  # lines after the header that are not the table's

    @property
    def is_long(self) -> bool:
        return self.units is None


def find_table(path: Path, text: bytes, is_wanted: Callable[[str], bool]) -> Table:
    """The one table of a file, with those columns of the wide shape that are wanted.

    InputError where there is none, more than one, or only a part.
    """
    found = HEADER.search(text)
    if found is None:
        raise _no_table(path, text)
    if foreign := COMMA_IS_DECIMAL.search(text, found.start(), found.start() + LOCALE_TEXT):
        raise foreign_locale(path, foreign[0].decode().strip('"'))
    try:
        lines = text[found.start() :].decode("utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error.reason} at byte {error.start}.", AGAIN) from error
    kept = _Lines(lines)
    csv.field_size_limit(LONGEST_CELL)
    rows = _parsed(path, csv.reader(kept, strict=True))
    header = next(rows)
    if len(set(header)) < len(header):
        raise InputError(f"{path} is damaged: a column stands in it twice.", AGAIN)
    if "Metric Name" in header:
        long = list(_long(path, header, rows))
        return Table(header, None, long, kept.skipped)
    return _wide(path, header, rows, is_wanted, kept)


def _parsed(path: Path, reader: Iterator[list[str]]) -> Iterator[list[str]]:
    header: list[str] | None = None
    try:
        for row in reader:
            if header is not None and row[:2] == header[:2]:
                raise InputError(f"{path} holds more than one table.", "Give each in a file of its own.")
            header = header or row
            if row:
                yield row
    except csv.Error as error:
        raise InputError(f"{path} is damaged or cut off: {error}.", AGAIN) from error


class _Lines:
    """The lines of the table. What else was printed between its rows is skipped and counted."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.skipped = 0

    def __iter__(self) -> Iterator[str]:
        is_first, inside = True, False
        for line in self._lines:
            if inside or is_first or ROW.match(line) or line.startswith('"ID"'):
                # An odd number of quotes opens a cell that goes on in the next line, or closes one.
                inside ^= line.count('"') % 2 == 1
                yield line
            elif line.strip():
                self.skipped += 1
            is_first = False


def _long(path: Path, header: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    if "Metric Value" not in header:
        raise InputError(
            f"{path} is a summary over launches, not the launches themselves.",
            "Export it without --print-summary.",
        )
    if "Metric Unit" not in header:
        raise InputError(f"{path} is damaged: it has no column of units.", AGAIN)
    least = header.index("Metric Value") + 1
    for row in rows:
        if not least <= len(row) <= len(header):
            raise _short(path, row, header)
        yield row


def _wide(
    path: Path,
    header: list[str],
    rows: Iterator[list[str]],
    is_wanted: Callable[[str], bool],
    kept: _Lines,
) -> Table:
    if not any("__" in name for name in header):
        raise InputError(f"{path} lists kernels, but no metric of any.", AGAIN)
    columns = [index for index, name in enumerate(header) if is_wanted(name)]
    chosen = []
    for row in rows:
        if len(row) != len(header):
            raise _short(path, row, header)
        chosen.append([row[index] for index in columns])
    if not chosen or any(cell.strip() for cell in chosen[0][:1]):
        raise InputError(f"{path} is damaged: the row of units below its header is missing.", AGAIN)
    return Table([header[index] for index in columns], chosen[0], chosen[1:], kept.skipped)


def _short(path: Path, row: list[str], header: list[str]) -> InputError:
    return InputError(
        f"{path} is damaged or cut off: the row of kernel {row[0] or '?'} has {len(row):,} of "
        f"{len(header):,} columns.",
        AGAIN,
    )


def foreign_locale(path: Path, figure: str) -> InputError:
    return InputError(
        f"{path} writes its figures with a decimal comma ({figure}), so thousands and fractions cannot be "
        "kept apart.",
        "Export it again with LC_ALL=C set: LC_ALL=C ncu --import FILE.ncu-rep --csv --page raw > FILE.csv",
    )


def _no_table(path: Path, text: bytes) -> InputError:
    if not text.strip():
        return InputError(f"{path} is empty.", AGAIN)
    if _is_summary(text):
        return InputError(
            f"{path} is a summary over launches, not the launches themselves.",
            "Export it without --print-summary.",
        )
    if b"==ERROR==" in text or b"==PROF==" in text:
        return InputError(
            f"{path} holds what Nsight Compute said, but no table of kernels.",
            "Did it profile any? Run it again with --csv, or export its report with ncu --import.",
        )
    return InputError(
        f"{path} is not a table of Nsight Compute: no line begins with ID, Process ID and names a kernel.",
        "Give what `ncu --csv` prints, with its header.",
    )
