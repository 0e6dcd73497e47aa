"""Where the host stood: calls merged and named by op, enclosing range and Python line.

A line is that of the nearest frame of the person's own code; where a trace has no stacks, the lines
that a sampler saw speak instead.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import numpy as np

from findwall.attribute.facts import Facts
from findwall.model.diagnosis import Evidence
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.model.run import HostLine
from findwall.structure.host import OWNERS, names_matching
from findwall.units import format_ms, format_share, ms

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
# Functions of torch that do nothing but run ops: a module, the backward pass, an optimizer's arithmetic.
_RUNS_OPS = re.compile(
    r":(forward|_engine_run_backward|_(single_tensor|multi_tensor|fused)_\w+)$|^functional\.py:"
)
_LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib/python\d[\d.]*|torch|torchvision|functorch)(?:/|$)|^<"
)
# The op a person wrote, not the ones it calls.
_ASKED = re.compile(
    r"^aten::(item|is_nonzero|nonzero|masked_select|unique\w*|_unique2|bincount|to|cpu|tolist|equal|allclose"
    r"|repeat_interleave|argwhere|where|index|_local_scalar_dense)$"
)
STDLIB = frozenset(sys.stdlib_module_names)


@dataclass(frozen=True, slots=True)
class Frame:
    place: str  # "train.py:88"
    function: str
    own: bool  # the person's code, not a library's


def parse_frame(name: str) -> Frame | None:
    """ "train.py(88): main" as a frame; None for what is not one (built-ins, modules)."""
    found = _FRAME.match(name)
    if found is None:
        return None
    path = found["file"].replace("\\", "/")
    first = path.split("/")[0].removesuffix(".py")
    own = not (_LIBRARY.search(path) or (not path.startswith("/") and first in STDLIB))
    return Frame(f"{path.rpartition('/')[2]}:{found['line']}", found["function"], own)


def frame_of(facts: Facts, row: int) -> Frame | None:
    """The nearest frame of the person's own code around a host row."""
    if row < 0:
        return None
    around = [row, *facts.links.ancestors(row)]
    frame = _nearest_own(facts, around)
    if frame is None and facts.links.backward[row]:
        forward = _forward_of(facts, around)
        frame = _nearest_own(facts, [forward, *facts.links.ancestors(forward)]) if forward >= 0 else None
    return frame


def line_of(facts: Facts, row: int) -> str | None:
    frame = frame_of(facts, row)
    return frame.place if frame is not None else None


def _nearest_own(facts: Facts, rows: list[int]) -> Frame | None:
    for row in rows:
        for name in _frames_at(facts, row):
            frame = parse_frame(name)
            if frame is not None and frame.own:
                return frame
    return None


def _frames_at(facts: Facts, row: int) -> list[str]:
    """The frames a row carries: a Python row is one, an op of torch 1.x lists its stack."""
    if facts.timeline.events.kind[row] == Kind.PYTHON:
        return [facts.timeline.name_of(row)]
    extra = facts.timeline.extra_of(row)
    return extra.call_stack.split(";") if extra is not None and extra.call_stack else []


def _forward_of(facts: Facts, rows: list[int]) -> int:
    """The forward op with the same sequence number as a backward row, -1 if there is none."""
    events = facts.timeline.events
    numbers = [int(events.sequence[row]) for row in rows if events.sequence[row] >= 0]
    if not numbers:
        return -1
    same = np.flatnonzero((events.sequence == numbers[0]) & ~facts.links.backward)
    return int(same[np.argmin(events.start[same])]) if len(same) else -1


def sampled(facts: Facts, between_ops: bool = False) -> HostLine | None:
    """The line on which a sampler most often saw the host: one of the person's own, if there is one.

    `between_ops`: where no op was running, as far as the samples tell.
    """
    return next(iter(_sampled(facts, between_ops)), None)


def _sampled(facts: Facts, between_ops: bool) -> list[HostLine]:
    """The sampler's lines, the person's own first, then by how often they were seen; paths cut short."""
    shares: dict[tuple[str, str], float] = {}  # one line may have been seen in several functions it calls
    lines = facts.rank.host_lines
    if between_ops:
        lines = tuple(line for line in lines if not _RUNS_OPS.search(line.inside)) or lines
    for line in lines:
        shares[line.place, line.function] = shares.get((line.place, line.function), 0.0) + line.share
    found = sorted(shares, key=lambda key: (bool(_LIBRARY.search(key[0])), -shares[key]))
    return [
        HostLine("/".join(place.split("/")[-2:]), function, min(shares[place, function], 1.0))
        for place, function in found
    ]


def sampled_evidence(facts: Facts, between_ops: bool = False) -> list[Evidence]:
    """What the sampler saw, where the run had one."""
    lines = _sampled(facts, between_ops)[:2]
    return [
        Evidence(
            f"{line.place} in {line.function}: the host stood here in {format_share(line.share)} of the "
            "samples",
            line=line.place,
        )
        for line in lines
    ]


# -- calls of the host -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Host calls of one name, op and line, with the device's idle time that is theirs."""

    call: str
    op: str | None
    within: str | None  # the range a person or a library put around it
    line: str | None
    row: int
    ms: float  # idle a step
    times: float  # a step

    @property
    def text(self) -> str:
        times = f", {times_text(self.times)} a step" if self.times >= 1.5 else ""
        call = f" ({self.call})" if self.op and self.call != self.op else ""
        return f"{self.place}{call}{times}: the device idled {format_ms(self.ms)}"

    @property
    def place(self) -> str:
        """The op, the range around it and its line: aten::item under clip_grad at train.py:88."""
        within = f" under {self.within}" if self.within else ""
        at = f" at {self.line}" if self.line else ""
        return f"{self.op or self.call}{within}{at}"


def rows_named(facts: Facts, pattern: re.Pattern[str], *kinds: Kind) -> I64:
    """Rows of the launching threads whose name matches, in host order, the outermost of nested ones."""
    events = facts.timeline.events
    if not facts.timeline.names:
        return np.empty(0, np.int64)
    mask = names_matching(facts.timeline, pattern)[events.name] & events.is_kind(*kinds)
    rows = np.flatnonzero(mask & np.isin(events.thread, facts.host.threads))
    rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    reach = np.maximum.accumulate(events.end[rows]) if len(rows) else rows
    outer = np.concatenate([[True], events.end[rows[1:]] > reach[:-1]]) if len(rows) else np.empty(0, bool)
    outermost: I64 = rows[outer]
    return outermost


def in_window(facts: Facts, rows: I64) -> I64:
    """Host rows that lie in the time of the window's launches."""
    if len(facts.queue.row) == 0:
        return rows[:0]
    events = facts.timeline.events
    low, high = int(facts.queue.issued.min()), int(facts.queue.issued.max())
    inside: I64 = rows[(events.end[rows] > low) & (events.start[rows] < high)]
    return inside


def blocking_rows(facts: Facts, cause: str) -> I64:
    """Calls with which the host waits for the device, of one of the causes that own such calls."""
    blocking = facts.host.blocking
    rows: I64 = blocking.row[blocking.owner == OWNERS.index(cause)]
    return rows


def waits(facts: Facts, cause: str, rows: I64) -> list[Wait]:
    """Idle time of a cause, given to its host rows: each gap to the last that began before its end."""
    rows = in_window(facts, rows)
    if len(rows) == 0:
        return []
    positions, amounts = facts.idle_rows(cause)
    start = facts.timeline.events.start[rows]
    at = np.maximum(np.searchsorted(start, facts.queue.start[positions], side="right") - 1, 0)
    idle = np.bincount(at, amounts, minlength=len(rows)) if len(positions) else np.zeros(len(rows))
    return _merged(facts, rows.tolist(), idle.tolist())


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a person asked for, behind a host call."""

    op: str | None
    row: int  # the op's, or the call's own where there is none: several calls of one op are one wait
    within: str | None


def _merged(facts: Facts, rows: list[int], idle: list[float]) -> list[Wait]:
    """Calls of the same op in the same place are one entry, whichever runtime call each of them made."""
    groups: dict[tuple[str, str | None, str | None], list[tuple[int, float, int]]] = {}
    for row, amount in zip(rows, idle, strict=True):
        asked = _asked(facts, row)
        key = (asked.op or facts.timeline.name_of(row), asked.within, line_of(facts, row))
        groups.setdefault(key, []).append((row, amount, asked.row))
    found = [_wait(facts, *key, members) for key, members in groups.items()]
    return sorted(found, key=lambda wait: (-wait.ms, -wait.times, wait.call, wait.op or ""))


def _wait(
    facts: Facts, what: str, within: str | None, line: str | None, members: list[tuple[int, float, int]]
) -> Wait:
    row = max(members, key=lambda one: one[1])[0]
    call = facts.timeline.name_of(row)
    idle = ms(sum(amount for _, amount, _ in members))
    times = len({asked for _, _, asked in members}) / facts.steps.count
    return Wait(call, None if what == call else what, within, line, row, idle, times)


def _asked(facts: Facts, row: int) -> _Asked:
    """The op a person wrote and the nearest range around it that says something."""
    ops: list[int] = []
    within = None
    for parent in facts.links.ancestors(row):
        kind, name = facts.timeline.events.kind[parent], facts.timeline.name_of(parent)
        if kind == Kind.OP:
            ops.append(parent)
        elif kind == Kind.ANNOTATION and within is None and not name.startswith("ProfilerStep"):
            within = name
    wanted = [op for op in ops if _ASKED.match(facts.timeline.name_of(op))]
    op = wanted[-1] if wanted else ops[0] if ops else -1
    return _Asked(facts.timeline.name_of(op) if op >= 0 else None, op if op >= 0 else row, within)


def times_text(times: float) -> str:
    return "once" if times < 1.5 else f"{times:,.0f} times"


def wait_evidence(found: list[Wait], limit: int = 3) -> list[Evidence]:
    return [Evidence(wait.text, None, wait.op, wait.line, wait.ms) for wait in found[:limit] if wait.ms > 0]
