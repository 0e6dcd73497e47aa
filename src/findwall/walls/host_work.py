"""The host does something else: it runs Python or library code with no op under it while the device waits.

What it finds:
Stretches of at least 0.2 ms in which the launching thread runs no op and no CUDA call: logging, writing
checkpoints, metrics in NumPy, tokenising, progress bars, environment steps of an RL loop.

Why it costs:
The device can only run what has been queued. Long host work outlasts the queue and delays everything
after it.

How it is told apart:
By silence: no op, no runtime call, and not inside the loader, a copy, a synchronisation, the allocator,
compilation or garbage collection. Between ops that follow each other closely the time is launch-bound.
A trace without Python stacks cannot name the line; a sampler's lines do (`findwall run`).

What helps:
move-io-off-step: do it less often, in another thread or process, or after the next step has been queued
(torch.save of a copy on the CPU in a thread, asynchronous checkpoints, log every n steps). vectorise-loop
where it is a loop, device-side-preprocessing where it makes the next batch, omp-threads where it waits for
a core. freeze-gc where the silence is the garbage collector's.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.figures import told, waiting
from findwall.attribute.kernel_names import short_kernel
from findwall.attribute.places import loops_in_python, parse_frame, sampled, sampled_evidence
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.events import TORCH, Kind
from findwall.units import format_ms, ms

CAUSE = "host-work"
ON_HOST = "on its own tensors, in"  # how a silence in which an op works on the host is told
GAPS_READ = 200  # the longest: each is looked up among all frames


class _Silence(msgspec.Struct, frozen=True):
    text: str
    line: str | None
    ms: float


def evidence(facts: Facts) -> list[Evidence]:
    found = [
        Evidence(f"{one.text}: the device waited {format_ms(one.ms)}", line=one.line, ms=one.ms)
        for one in _silences(facts)
    ]
    if facts.rank.host_lines:
        seen = sampled_evidence(facts, between_ops=True)
        found = [*found[: EVIDENCE_ROWS - 1], *seen, *found[EVIDENCE_ROWS - 1 :]]
    return found[:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    silences = _silences(facts)
    line = sampled(facts, between_ops=True)
    known = next((one for one in silences if one.line), None)
    if silences and silences[0].text.startswith(ON_HOST):
        fact = f"{waiting(facts, CAUSE)} while the host computes {silences[0].text}"
        return told(facts, CAUSE, fact, "do it on the device, or ahead of the step in another process")
    if known is not None:
        where = f"in {known.text}"
    elif line is not None:
        where = f"most often at {line.place} ({line.function})"
    elif silences and facts.reading.source == "measured":  # its sampler saw none
        where = silences[0].text
    elif silences:
        stacks = "Record with_stack=True or use" if facts.timeline.header.recorder == TORCH else "Use"
        where = f"{silences[0].text}. {stacks} `findwall run` to see the line"
    else:
        where = "in a place the trace does not name"
    fact = f"{waiting(facts, CAUSE)} while the host does work of its own with no op under it, {where}"
    other = "process" if loops_in_python(facts) else "thread"  # beside Python in a thread no kernel is issued
    return told(facts, CAUSE, fact, f"do it with ops on whole tensors, less often, or in another {other}")


def _silences(facts: Facts) -> list[_Silence]:
    """Host work merged by what the host was doing, the longest first."""
    positions, amounts = facts.idle_rows(CAUSE)
    total: dict[tuple[str, str | None], float] = {}
    for at, amount in zip(positions[:GAPS_READ].tolist(), amounts[:GAPS_READ].tolist(), strict=True):
        key = _doing(facts, at)
        total[key] = total.get(key, 0.0) + amount
    least = MENTION_SHARE * sum(total.values())
    best = sorted((key for key in total if total[key] > least), key=lambda key: (-total[key], key[0]))
    return [_Silence(text, line, ms(total[text, line])) for text, line in best]


def _doing(facts: Facts, position: int) -> tuple[str, str | None]:
    """What the host did in one gap: a line of Python, else the ops the silence lies between."""
    start, end = int(facts.queue.idle_from[position]), int(facts.queue.idle_until[position])
    frame = _frame(facts, start, end)
    if frame is not None:
        return frame
    op = _host_op(facts, start, end)
    if op is not None:
        return f"{ON_HOST} {op}", None
    call = _system_call(facts, start, end)
    before, after = _neighbours(facts, start, end)
    earlier = (position - 1) % len(facts.queue.row) if facts.queue.repeats else position - 1
    where = _between(before or _launcher(facts, earlier), after or _launcher(facts, position))
    return (f"in {call}, {where}" if call else where), None


def _host_op(facts: Facts, start: int, end: int) -> str | None:
    """The op that ran on the host's own tensors for most of a gap: it launches nothing."""
    events = facts.timeline.events
    rows = np.flatnonzero(events.is_kind(Kind.OP) & (events.start < end) & (events.end > start))
    rows = rows[np.isin(events.thread[rows], facts.host.threads)]
    calls = events.start[facts.links.launch[facts.queue.row[facts.queue.launched]]]
    launches = [((calls >= events.start[row]) & (calls < events.end[row])).any() for row in rows.tolist()]
    rows = rows[~np.array(launches, bool)]
    inside = np.minimum(events.end[rows], end) - np.maximum(events.start[rows], start)
    if len(rows) == 0 or inside.max() < MAJORITY_SHARE * (end - start):
        return None
    return facts.timeline.name_of(int(rows[int(np.argmax(inside))]))


def _between(before: str | None, after: str | None) -> str:
    if before and after:
        return f"between {before} and {after}"
    if before or after:
        return f"after {before}" if before else f"before {after}"
    return "where the trace records no op at all"


def _launcher(facts: Facts, position: int) -> str | None:
    """The op behind one place of the device's queue: where the host's ops are not recorded, its kernel."""
    if not 0 <= position < len(facts.queue.row):
        return None
    row = int(facts.queue.row[position])
    op = int(facts.links.op[row])
    return facts.timeline.name_of(op) if op >= 0 else short_kernel(facts.timeline.name_of(row))


def _frame(facts: Facts, start: int, end: int) -> tuple[str, str | None] | None:
    """The innermost frame of the person's own code that covers most of a gap, and what it called."""
    events = facts.timeline.events
    rows = facts.timeline.rows(Kind.PYTHON)
    rows = rows[
        (events.start[rows] < end)
        & (events.end[rows] > start)
        & np.isin(events.thread[rows], facts.host.threads)
    ]
    overlap = np.minimum(events.end[rows], end) - np.maximum(events.start[rows], start)
    rows = rows[overlap >= MAJORITY_SHARE * (end - start)]
    rows = rows[np.argsort(events.duration[rows], kind="stable")]
    for row in rows.tolist():
        frame = parse_frame(facts.timeline.name_of(row))
        if frame is not None and frame.own:
            return f"{frame.function} ({frame.place})", frame.place
    return None


def _system_call(facts: Facts, start: int, end: int) -> str | None:
    """The call of the operating system that covers most of a gap, where an export of nsys has them."""
    events = facts.timeline.events
    if facts.timeline.header.recorder == TORCH:
        return None
    rows = facts.timeline.rows(Kind.OTHER)
    rows = rows[np.isin(events.thread[rows], facts.host.threads)]
    overlap = np.minimum(events.end[rows], end) - np.maximum(events.start[rows], start)
    names = events.name[rows[overlap > 0]]
    covered = np.bincount(names, overlap[overlap > 0], minlength=len(facts.timeline.names))
    most = int(np.argmax(covered)) if len(names) else -1
    return (
        facts.timeline.names[most] if most >= 0 and covered[most] >= MAJORITY_SHARE * (end - start) else None
    )


def _neighbours(facts: Facts, start: int, end: int) -> tuple[str | None, str | None]:
    """The last op that ended before the longest silence of a gap, and the first that began after it."""
    quiet = facts.host.working.gaps(start, end)
    if len(quiet) == 0:
        return None, None
    longest = int(np.argmax(quiet.end - quiet.start))
    low, high = int(quiet.start[longest]), int(quiet.end[longest])
    events = facts.timeline.events
    rows = facts.timeline.rows(Kind.OP)
    rows = rows[np.isin(events.thread[rows], facts.host.threads)]
    earlier, later = rows[events.end[rows] <= low], rows[events.start[rows] >= high]
    before = facts.timeline.name_of(int(earlier[np.argmax(events.end[earlier])])) if len(earlier) else None
    after = facts.timeline.name_of(int(later[np.argmin(events.start[later])])) if len(later) else None
    return before, after
