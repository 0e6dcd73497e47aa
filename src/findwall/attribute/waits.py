"""What the device waits for: calls of the host, merged and named, with the idle time that is theirs."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.attribute.device_time import of_class, rows_of
from findwall.attribute.facts import Facts
from findwall.attribute.places import line_of
from findwall.model.claims import Claim, Figure, known, lines
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
from findwall.replay.blame import CHECKPOINTING
from findwall.replay.graph import LAUNCHING
from findwall.structure.host import OWNERS, rows_matching
from findwall.units import ms

# The op a person wrote, not the ones it calls.
_ASKED = re.compile(
    r"^aten::(item|is_nonzero|nonzero|masked_select|unique\w*|_unique2|bincount|to|cpu|tolist|equal|allclose"
    r"|repeat_interleave|argwhere|where|index|_local_scalar_dense)$"
)


class Wait(msgspec.Struct, frozen=True):
    """Host calls of one name, op and line, with the device's idle time that is theirs."""

    call: str
    op: str | None
    within: str | None  # the range a person or a library put around it
    line: str | None
    row: int
    ms: float  # idle a step
    times: float  # a step

    def claim(self, what: str) -> Claim:
        figures: dict[str, Figure] = {"times": self.times, "ms": self.ms}
        return Claim(what, figures, known(op=self.op, call=self.call, range=self.within), lines(self.line))

    @property
    def place(self) -> str:
        """The op, the range around it and its line: aten::item under clip_grad at train.py:88."""
        within = f" under {self.within}" if self.within else ""
        at = f" at {self.line}" if self.line else ""
        return f"{self.op or self.call}{within}{at}"


def rows_named(facts: Facts, pattern: re.Pattern[str], *kinds: Kind) -> I64:
    """Rows of the launching threads whose name matches, in host order, the outermost of nested ones."""
    events = facts.timeline.events
    rows = np.flatnonzero(events.is_kind(*kinds) & np.isin(events.thread, facts.host.threads))
    rows = rows_matching(facts.timeline, rows, pattern)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    reach = np.maximum.accumulate(events.end[rows]) if len(rows) else rows
    outer = np.concatenate([[True], events.end[rows[1:]] > reach[:-1]]) if len(rows) else np.empty(0, bool)
    kept: I64 = rows[outer]
    return kept


def in_window(facts: Facts, rows: I64) -> I64:
    """Host rows that begin in the host's time of the counted steps."""
    start = facts.timeline.events.start[rows]
    inside: I64 = rows[(start >= facts.queue.opens) & (start < facts.queue.closes)]
    return inside


def blocking_rows(facts: Facts, cause: str) -> I64:
    """Calls with which the host waits for the device, of one of the causes that own such calls."""
    blocking = facts.host.blocking
    rows: I64 = blocking.row[blocking.owner == OWNERS.index(cause)]
    return rows


def waits(facts: Facts, cause: str, rows: I64) -> list[Wait]:
    """Idle time of a cause, given to its host rows: each gap to the last that began before its end."""
    rows = in_window(facts, rows)
    return merged(facts, rows, shared_idle(facts, cause, rows))


def shared_idle(facts: Facts, cause: str, rows: I64) -> F64:
    """Idle ns a step of a cause for each of its host rows, which are in host order."""
    positions, amounts = facts.idle_rows(cause)
    if len(positions) == 0 or len(rows) == 0:
        return np.zeros(len(rows))
    start = facts.timeline.events.start[rows]
    at = np.maximum(np.searchsorted(start, facts.queue.idle_until[positions], side="right") - 1, 0)
    idle: F64 = np.bincount(at, amounts, minlength=len(rows)).astype(np.float64)
    return idle


class _Asked(msgspec.Struct, frozen=True):
    """What a person asked for, behind a host call."""

    op: str | None
    row: int  # the op's, or the call's own where there is none: several calls of one op are one wait
    within: str | None


def merged(facts: Facts, rows: I64, idle: F64) -> list[Wait]:
    """Calls of the same op in the same place are one entry, whichever runtime call each of them made."""
    groups: dict[tuple[str, str | None, str | None], list[tuple[int, float, int]]] = {}
    for row, amount in zip(rows.tolist(), idle.tolist(), strict=True):
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


def wait_evidence(found: list[Wait], limit: int = EVIDENCE_ROWS) -> list[Evidence]:
    return [
        Evidence("", None, wait.op, wait.line, wait.ms, wait.claim("evidence/wait"))
        for wait in found[:limit]
        if wait.ms > 0
    ]


def sync_rows(facts: Facts) -> I64:
    """Calls in the window with which the host waits for the device, copies to it left out."""
    return in_window(facts, blocking_rows(facts, "host-sync"))


def syncs(facts: Facts) -> list[Wait]:
    """The same, merged and named, the costliest first."""
    return waits(facts, "host-sync", sync_rows(facts))


def outermost(facts: Facts, rows: I64) -> I64:
    """For each call the op it lies in that no other op contains; the call itself where there is none."""
    found: I64 = rows.copy()
    at = rows.copy()
    while (at >= 0).any():
        above = np.maximum(at, 0)
        is_op = (at >= 0) & (facts.timeline.events.kind[above] == Kind.OP)
        found[is_op] = at[is_op]
        at = np.where(at >= 0, facts.links.parent[above], -1)
    return found


def common_sync(facts: Facts) -> str | None:
    """What most calls that wait for the device lie in."""
    names, counts = np.unique(
        facts.timeline.events.name[outermost(facts, sync_rows(facts))], return_counts=True
    )
    return facts.timeline.names[int(names[np.argmax(counts)])] if len(names) else None


def launch_idle(facts: Facts) -> float:
    """Idle time that waits for launches, in ms a step, whatever they are for; without turn-around."""
    scenario = facts.reading.likely
    return ms(max(scenario.idle[LAUNCHING] - scenario.turnaround, 0.0) + scenario.idle[CHECKPOINTING])


def idle_before(facts: Facts, cause: str, class_name: str) -> float:
    """Idle time of one cause in front of kernels of one class, in ms a step."""
    return idle_in_front(facts, cause, np.flatnonzero(of_class(facts, class_name)))


def idle_in_front(facts: Facts, cause: str, atoms: I64) -> float:
    """Idle time of one cause in front of these kernels, in ms a step."""
    positions, amounts = facts.idle_rows(cause)
    mine: F64 = amounts[np.isin(facts.queue.row[positions], rows_of(facts, atoms))]
    return ms(float(mine.sum()))


def optimizer_launches(facts: Facts) -> float:
    """Waiting for the optimizer's own launches, in ms a step: nothing done to the model changes it."""
    return min(idle_before(facts, "launch-bound", "optimizer"), facts.recoverable_ms("launch-bound") or 0.0)
