"""Do not make the host wait for the device inside the step.

What it does:
`.item()`, `.cpu()`, `.numpy()`, `.tolist()`, `print(tensor)`, `nonzero`, indexing with a mask and
`if` on a device value all stop the host until the queue has run dry; then the device waits
until the host has filled it again. Keep such values on the device, add them up there, and look at
them every n steps; replace indices by masks (`torch.where`); copy results out with
`non_blocking=True` into pinned memory and read them a step later. `findwall try` shows the gain without
the edit: what the job's own lines read comes a step late, except where it decides a loop, a size or a
comparison. What `nonzero` and masks wait for stays.

When it does not help:
The host is far ahead anyway, and the wait is over before the queue is empty: then the device never
notices. A step that the host cannot issue faster stays as slow as its launches.

Risk:
None for the results. Values that are logged arrive later; a check for NaN fires some steps late.
"""

from __future__ import annotations

from findwall.facts.figures import SECOND_NAMED_SHARE
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.facts.waits import Wait, anomaly_checks, routine_waits, syncs
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, ideal, lines, no_use, surely
from findwall.fixes.host.late_reads import read_late
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64, union
from findwall.replay.change import Change, Drop, without
from findwall.step.call_names import outermost, sync_rows
from findwall.step.step_facts import StepFacts

MOVES = ("host-sync", "launch-bound")

# What to do instead, by the op that waits.
INSTEAD = {
    "item": "keep",
    "_local_scalar_dense": "keep",
    "is_nonzero": "where",
    "nonzero": "mask",
    "index": "mask",
    "masked_select": "mask",
    "unique": "fixed-size",
    "to": "copy-later",
    "cpu": "copy-later",
    "copy_": "copy-later",
}


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("host-sync")
    found = [wait for wait in syncs(facts) if not wait.in_routine]
    if spent <= 0:
        return no_use("remove-sync/never-dry" if found else "remove-sync/none")
    rounds = waiting_rounds(facts)
    if rounds is not None and len(rounds.waits) > MAJORITY_SHARE * len(sync_rows(facts)):
        return no_use("remove-sync/in-rounds", times=len(rounds.waits) / facts.steps.count)
    inside = routine_waits(facts)
    if len(inside) > MAJORITY_SHARE * len(sync_rows(facts)):
        return no_use("remove-sync/in-routines", times=len(inside) / facts.steps.count)
    asked = anomaly_checks(facts)
    if len(asked) and len(_within(facts, asked)) > MAJORITY_SHARE * len(sync_rows(facts)):
        return no_use("remove-sync/in-anomaly-mode", times=len(asked) / facts.steps.count)
    if not found:
        return surely(Claim("remove-sync/unnamed", {"waits_ms": spent}), ideal(facts, *MOVES[:1]))
    named = [_instead(wait) for wait in found if wait.ms >= SECOND_NAMED_SHARE * found[0].ms]
    read = _unread(facts, outermost(facts, sync_rows(facts)))
    best = _unread(facts, facts.host.questions) + read
    # A value that stays on the device is still computed there; one that is looked at every n steps is not.
    return Use(
        Claim("remove-sync/named", parts=named),
        best,
        likely=lambda made: read,
        uncurved=True,
        may=(lambda made: best,),
    )


def _within(facts: StepFacts, calls: I64) -> I64:
    """Calls that wait inside one of these."""
    events, rows = facts.timeline.events, sync_rows(facts)
    start = events.start[rows]
    return rows[union(events.start[calls], events.end[calls]).covered_within(start, start + 1) > 0]


def _unread(facts: StepFacts, calls: I64) -> Change:
    """Nobody waits, and what these calls launch is not launched: the copies out, or comparisons too."""
    issued, events = facts.queue.issued, facts.timeline.events
    inside = union(events.start[calls], events.end[calls]).covered_within(issued, issued + 1) > 0
    return without("host-sync") + Change((Drop(facts.queue.row[inside & facts.queue.launched]),))


def _instead(wait: Wait) -> Claim:
    instead = "synchronize" if wait.op is None else INSTEAD.get(wait.op.rpartition("::")[2], "move")
    names = {"op": wait.op or wait.call, "within": wait.within or ""}
    return Claim(f"remove-sync/{instead}", {"times": wait.times}, names, lines(wait.line))


# In a trial the job's own lines get what they read a step late.
FIX = Fix(MOVES, "safe", use, tried=10, stand_in=read_late, live=read_late)
