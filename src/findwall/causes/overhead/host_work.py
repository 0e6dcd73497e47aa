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
(torch.save of a copy on the CPU in a thread, asynchronous checkpoints, log every n steps). batch-small-ops
where it trains many models one by one, vectorise-loop where it is a loop, device-side-preprocessing where it
makes the next batch, omp-threads where it waits for a core, scan-loop where each round needs the one before,
make-on-device where it draws numbers to copy them, loop-on-device where the loop asks the device for sizes.
convert-at-once where a tensor is made of a list, number by number. freeze-gc where the silence is the
garbage collector's. shorter-host-calls where one call of a library takes that long.
debug-off where tracebacks are kept, linalg-route where a routine of linear algebra is
what the host is busy with.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Figure, Told, known, lines
from findwall.facts.user_lines import (
    Frame,
    long_calls,
    loops_in_python,
    parse_frame,
    routines_called,
    sampled,
    sampled_evidence,
)
from findwall.facts.waits import GAPS_READ, host_op
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.events import TORCH, Kind
from findwall.step.step_facts import StepFacts
from findwall.units import ms

NAME = "host-work"


class _Where(msgspec.Struct, frozen=True):
    """What the host was doing: a function of the person's own, else what its silence lies between."""

    function: str = ""
    line: str = ""
    computes: str = ""  # an op on the host's own tensors
    call: str = ""  # of the operating system
    before: str = ""
    after: str = ""
    before_kernel: str = ""  # where no op is recorded
    after_kernel: str = ""

    def claim(self, what: str, figures: dict[str, Figure]) -> Claim:
        fields = msgspec.structs.asdict(self)
        line = fields.pop("line")
        return Claim(what, figures, known(**fields), lines(line))


def shows(facts: Facts) -> list[Evidence]:
    found = [
        Evidence("", None, None, where.line or None, spent, where.claim("evidence/silence", {"ms": spent}))
        for where, spent in _silences(facts).items()
    ]
    if facts.rank.host_lines:
        seen = sampled_evidence(facts, between_ops=True)
        found = [*found[: EVIDENCE_ROWS - 1], *seen, *found[EVIDENCE_ROWS - 1 :]]
    return found


def says(facts: Facts) -> Told:
    silences = list(_silences(facts))
    line = sampled(facts, between_ops=True)
    where = next((one for one in silences if one.line), None)
    if silences and silences[0].computes:
        return Told(silences[0].claim("host-work/computes", {}), Claim("host-work/on-device"))
    if where is None and line is not None:
        fact = Claim("host-work/seen", names={"function": line.function}, places=[line.place])
    elif where is None and not silences:
        fact = Claim("host-work/nowhere")
    else:
        # A sampler that saw no line would see none again.
        unseen = where is None and facts.reading.source != "measured"
        recorder = facts.timeline.header.recorder
        fact = (where or silences[0]).claim("host-work/silence", {"unseen": unseen, "recorder": recorder})
    if routines_called(facts) and "make-on-device" not in facts.refused:
        return Told(fact, Claim("advise/make-on-device"))
    if line is not None and any(one.place == line.place for one in long_calls(facts)):
        return Told(fact, Claim("advise/shorter-host-calls"))
    # Beside Python in a thread no kernel is issued.
    return Told(fact, Claim("host-work/elsewhere", {"process": loops_in_python(facts)}))


def _silences(facts: Facts) -> dict[_Where, float]:
    """Host work merged by what the host was doing, in ms a step, the longest first."""
    positions, amounts_ns = facts.idle_rows(NAME)
    total: dict[_Where, float] = {}
    for at, amount in zip(positions[:GAPS_READ].tolist(), amounts_ns[:GAPS_READ].tolist(), strict=True):
        where = _doing(facts, at)
        total[where] = total.get(where, 0.0) + amount
    least = MENTION_SHARE * sum(total.values())
    best = sorted(total.items(), key=lambda item: (-item[1], msgspec.structs.astuple(item[0])))
    return {where: ms(spent) for where, spent in best if spent > least}


def _doing(facts: StepFacts, position: int) -> _Where:
    """What the host did in one gap: a line of Python, else the ops the silence lies between."""
    start, end = int(facts.queue.idle_from[position]), int(facts.queue.idle_until[position])
    frame = _frame(facts, start, end)
    if frame is not None:
        return _Where(frame.function, frame.place)
    op = host_op(facts, start, end)
    if op >= 0:
        return _Where(computes=facts.timeline.name_of(op))
    before, after = _neighbours(facts, start, end)
    earlier = (position - 1) % len(facts.queue.row) if facts.queue.repeats else position - 1
    names = {**_launcher(facts, earlier, "before"), **_launcher(facts, position, "after")}
    if before:
        names = {"before": before, **{key: name for key, name in names.items() if "before" not in key}}
    if after:
        names = {"after": after, **{key: name for key, name in names.items() if "after" not in key}}
    return _Where(call=_system_call(facts, start, end), **names)


def _launcher(facts: StepFacts, position: int, side: str) -> dict[str, str]:
    """The op behind one place of the device's queue: where the host's ops are not recorded, its kernel."""
    if not 0 <= position < len(facts.queue.row):
        return {}
    row = int(facts.queue.row[position])
    op = int(facts.links.op[row])
    return {side: facts.timeline.name_of(op)} if op >= 0 else {f"{side}_kernel": facts.timeline.name_of(row)}


def _frame(facts: StepFacts, start: int, end: int) -> Frame | None:
    """The innermost frame of the person's own code that covers most of a gap."""
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
            return frame
    return None


def _system_call(facts: StepFacts, start: int, end: int) -> str:
    """The call of the operating system that covers most of a gap, where an export of nsys has them."""
    events = facts.timeline.events
    if facts.timeline.header.recorder == TORCH:
        return ""
    rows = facts.timeline.rows(Kind.OTHER)
    rows = rows[np.isin(events.thread[rows], facts.host.threads)]
    overlap = np.minimum(events.end[rows], end) - np.maximum(events.start[rows], start)
    names = events.name[rows[overlap > 0]]
    covered = np.bincount(names, overlap[overlap > 0], minlength=len(facts.timeline.names))
    most = int(np.argmax(covered)) if len(names) else -1
    return facts.timeline.names[most] if most >= 0 and covered[most] >= MAJORITY_SHARE * (end - start) else ""


def _neighbours(facts: StepFacts, start: int, end: int) -> tuple[str | None, str | None]:
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


CAUSE = Cause(NAME, says, shows)
