"""The loops of a code object, read off its bytecode: nothing of the job is run or changed for it.

A loop is what its backward jumps close (the natural loop): every instruction from which such a jump is
reached again without passing the loop's beginning. Python lays `except` blocks and `continue` out of line, so
offsets between a jump and its target would not do.
"""

from __future__ import annotations

import dis
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any

BACKWARD = "JUMP_BACKWARD"  # the only one that closes a loop; that of `await` is another
NEVER_ON = frozenset(  # instructions that the next one does not follow
    (
        BACKWARD,
        "JUMP_BACKWARD_NO_INTERRUPT",
        "JUMP_FORWARD",
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
    )
)
WORD = 2  # bytes
MAY_RAISE = ("FOR_ITER", "CALL", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "BINARY_", "COMPARE_", "SEND")
ITERATES = frozenset(("FOR_ITER", "GET_ANEXT"))  # a `for` begins with it, whichever way its turn ended


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop of one code object."""

    code: CodeType
    begins: int  # the offset of its first instruction
    line: int
    inside: frozenset[int]  # the offsets of its words: a frame may stand in a cache behind its call
    jumps: frozenset[int]  # those of the jumps that end a turn
    may_raise: frozenset[int]  # those of instructions that an exception may come from

    @property
    def key(self) -> int:
        """One number for it, in this process."""
        return hash((self.code.co_filename, self.code.co_firstlineno, self.begins))

    @property
    def place(self) -> str:
        return f"{Path(self.code.co_filename).name}:{self.line}"


def loops_of(code: CodeType) -> list[Loop]:
    """The loops of this code, an outer one before those inside it."""
    rows = [row for row in dis.get_instructions(code) if row.opname != "EXTENDED_ARG"]
    backward = [
        row for last, row in pairwise(rows) if row.opname == BACKWARD and last.opname != "CLEANUP_THROW"
    ]  # what is thrown into an `await` is put right by a jump too, which is no loop
    if not backward:
        return []
    before = _before(code, rows)
    lines = {row.offset: _line(row) for row in rows}
    names = {row.offset: row.opname for row in rows}
    offsets = [row.offset for row in rows]
    inside: dict[int, set[int]] = {}
    jumps: dict[int, set[int]] = {}
    for jump in backward:
        target = _at_or_after(offsets, jump.argval)
        begins = target if names[target] in ITERATES else _test_of(target, lines[jump.offset], offsets, lines)
        turn = _natural(jump.offset, target, before)
        if offsets[0] in turn:
            continue  # from an `except` block, laid out behind, to what follows it
        inside.setdefault(begins, set()).update(turn)
        jumps.setdefault(begins, set()).add(jump.offset)
    widths = {one: range(one, after, WORD) for one, after in pairwise((*offsets, len(code.co_code)))}
    found = [
        Loop(
            code,
            at,
            lines[at] or code.co_firstlineno,
            frozenset(word for offset in inside[at] for word in widths[offset]),
            frozenset(jumps[at]),
            frozenset(offset for offset in inside[at] if names[offset].startswith(MAY_RAISE)),
        )
        for at in inside
    ]
    return sorted(found, key=lambda loop: -len(loop.inside))


def _line(row: Any) -> int | None:
    return None if row.positions is None else row.positions.lineno


def around(loops: Iterable[Loop], offset: int) -> list[Loop]:
    """Those of them that this instruction is part of."""
    return [loop for loop in loops if offset in loop.inside]


def _at_or_after(offsets: list[int], target: int) -> int:
    """A jump may lead to the prefix of a long instruction."""
    return offsets[bisect_left(offsets, target)]


def _test_of(target: int, line: int | None, offsets: list[int], lines: dict[int, int | None]) -> int:
    """Where the test of a `while` begins: Python writes it twice, before the body and at its end, and jumps
    from the end to the body; `continue` jumps to the first test."""
    at = bisect_left(offsets, target)
    while at > 0 and line is not None and lines[offsets[at - 1]] == line:
        at -= 1
    return offsets[at]


def _before(code: CodeType, rows: list[dis.Instruction]) -> dict[int, list[int]]:
    """For each instruction, those from which it is reached."""
    offsets = [row.offset for row in rows]
    before: dict[int, list[int]] = {offset: [] for offset in offsets}
    for row, after in pairwise(rows):
        if row.opname not in NEVER_ON:
            before[after.offset].append(row.offset)
    for row in rows:
        if row.opcode in dis.hasjrel or row.opcode in dis.hasjabs:
            before[_at_or_after(offsets, row.argval)].append(row.offset)
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        handler = before[_at_or_after(offsets, entry.target)]
        handler.extend(offsets[bisect_left(offsets, entry.start) : bisect_left(offsets, entry.end)])
    return before


def _natural(jump: int, target: int, before: dict[int, list[int]]) -> set[int]:
    found = {target, jump}
    todo = [jump] if jump != target else []
    while todo:
        for offset in before[todo.pop()]:
            if offset not in found:
                found.add(offset)
                todo.append(offset)
    return found
