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

from typing import Any

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.figures import MORE_THAN_ONCE, SECOND_NAMED_SHARE, a_step
from findwall.attribute.waits import Wait, outermost, sync_rows, syncs
from findwall.attribute.whatif import ideal
from findwall.fixes import Fix, NoUse, Outcome, surely
from findwall.measure.applying import Effect
from findwall.measure.late_reads import read_late
from findwall.model.intervals import union
from findwall.replay.change import Change, Drop, without

MOVES = ("host-sync", "launch-bound")

INSTEAD = {
    "item": "keep the value on the device and read it every n steps",
    "_local_scalar_dense": "keep the value on the device and read it every n steps",
    "is_nonzero": "use torch.where instead of `if` on a device value, or test every n steps",
    "nonzero": "work with the mask (torch.where) instead of its indices",
    "index": "work with the mask (torch.where) instead of its indices",
    "masked_select": "work with the mask (torch.where) instead of its indices",
    "unique": "give it a fixed size, or do it outside the step",
    "to": "copy with non_blocking=True into pinned memory and read it a step later",
    "cpu": "copy with non_blocking=True into pinned memory and read it a step later",
    "copy_": "copy with non_blocking=True into pinned memory and read it a step later",
}
LONGEST_ADVICE_CHARS = 230  # what a person reads; two waits that take more become one
WAITS_NAMED = 2
INSTEAD_OF_SYNCHRONIZE = "drop the explicit synchronize (CUDA events can do the timing)"


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("host-sync")
    found = syncs(facts)
    if spent <= 0:
        return NoUse(
            "the device never runs dry because of a synchronisation"
            if found
            else "there is no synchronisation in the step"
        )
    if not found:
        return surely(
            f"Keep device values on the device: it waits {a_step(spent)} because of synchronisations.",
            ideal(facts, *MOVES[:1]),
        )
    named = "; ".join(
        _sentence(wait) for wait in found[:WAITS_NAMED] if wait.ms >= SECOND_NAMED_SHARE * found[0].ms
    )
    if len(named) > LONGEST_ADVICE_CHARS:
        named = _sentence(found[0])
    return surely(f"{named}.", _best(facts))


def _best(facts: Facts) -> Change:
    """Nobody waits, and what was launched only to be read is not launched: comparisons, the copies out."""
    outer = np.union1d(outermost(facts, sync_rows(facts)), facts.host.questions)
    issued = facts.queue.issued
    events = facts.timeline.events
    inside = union(events.start[outer], events.end[outer]).covered_within(issued, issued + 1) > 0
    return without("host-sync") + Change((Drop(facts.queue.row[inside & facts.queue.launched]),))


def _sentence(wait: Wait) -> str:
    kind = (wait.op or "").rpartition("::")[2]
    instead = INSTEAD.get(
        kind, INSTEAD_OF_SYNCHRONIZE if wait.op is None else "move it out of the step, or do it every n steps"
    )
    times = f" ({wait.times:,.0f} times per step)" if wait.times >= MORE_THAN_ONCE else ""
    return f"{wait.place}{times}: {instead}"


def stand_in(torch: Any, effect: Effect) -> None:
    """The job's own lines get what they read a step late."""
    read_late(torch, effect)


FIX = Fix(MOVES, "safe", advise, tried=10, stand_in=stand_in)
