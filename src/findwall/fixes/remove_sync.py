"""Do not make the host wait for the device inside the step.

What it does:
`.item()`, `.cpu()`, `.numpy()`, `.tolist()`, `print(tensor)`, `nonzero`, indexing with a mask and
`if` on a device value all stop the host until the queue has run dry; then the device stands still
until the host has filled it again. Keep such values on the device, add them up there, and look at
them every n steps; replace indices by masks (`torch.where`); copy results out with
`non_blocking=True` into pinned memory and read them a step later.

When it does not help:
The host is far ahead anyway, and the wait is over before the queue is empty: then the device never
notices. A step that the host cannot issue faster stays as slow as its launches.

Risk:
None for the results. Values that are logged arrive later; a check for NaN fires some steps late.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, gain_ms, step_ms
from findwall.attribute.waits import Wait, outermost, sync_rows, syncs
from findwall.model.advice import Advice, no_use, use
from findwall.units import ms

MOVES = ("host-sync", "launch-bound")
SAFETY = "safe"

INSTEAD = {
    "item": "keep the value on the device and read it every n steps",
    "_local_scalar_dense": "keep the value on the device and read it every n steps",
    "is_nonzero": "no `if` on a device value: use torch.where, or test every n steps",
    "nonzero": "work with the mask (torch.where) instead of its indices",
    "index": "work with the mask (torch.where) instead of its indices",
    "masked_select": "work with the mask (torch.where) instead of its indices",
    "unique": "give it a fixed size, or do it outside of the step",
    "to": "copy with non_blocking=True into pinned memory and read it a step later",
    "cpu": "copy with non_blocking=True into pinned memory and read it a step later",
    "copy_": "copy with non_blocking=True into pinned memory and read it a step later",
}
LONGEST = 230  # characters a person reads
EXPLICIT = "leave the explicit synchronize out (time with CUDA events)"


def advise(facts: Facts) -> Advice:
    spent = facts.spent_ms("host-sync")
    found = syncs(facts)
    if spent <= 0:
        return no_use(
            "the device never runs dry because of a synchronisation"
            if found
            else "there is no synchronisation in the step"
        )
    if not found:
        return use(
            f"Keep device values on the device: the device idles {a_step(spent)} behind synchronisations."
        )
    named = "; ".join(_sentence(wait) for wait in found[:2] if wait.ms >= 0.1 * found[0].ms)
    if len(named) > LONGEST:
        named = _sentence(found[0])
    drained = gain_ms(facts, "host-sync")
    # Where the waits themselves cost next to nothing, the launches around them are slow on their own account.
    wake = _in_their_wake(facts) if drained > 0.01 * step_ms(facts) else 0.0
    wake = min(wake, gain_ms(facts, "launch-bound"))
    return use(f"{named}.", drained + wake, MOVES if wake > 0.01 * step_ms(facts) else MOVES[:1])


def _in_their_wake(facts: Facts) -> float:
    """Launch gaps that go with the syncs: before what the waiting op itself launches, and before the next."""
    events = facts.timeline.events
    outer = np.unique(outermost(facts, sync_rows(facts)))
    if len(outer) == 0:
        return 0.0
    outer = outer[np.argsort(events.start[outer], kind="stable")]
    positions, amounts = facts.idle_rows("launch-bound")
    issued = facts.queue.issued[positions]
    around = outer[np.maximum(np.searchsorted(events.start[outer], issued, side="right") - 1, 0)]
    inside = (events.start[around] <= issued) & (issued < events.end[around])
    launches = np.sort(facts.queue.issued)
    first = np.searchsorted(launches, events.end[outer])
    next_ones = launches[first[first < len(launches)]]
    return ms(float(amounts[inside | np.isin(issued, next_ones)].sum()))


def _sentence(wait: Wait) -> str:
    kind = (wait.op or "").rpartition("::")[2]
    instead = INSTEAD.get(
        kind, EXPLICIT if wait.op is None else "move it out of the step, or do it every n steps"
    )
    times = f" ({wait.times:,.0f} times a step)" if wait.times >= 1.5 else ""
    return f"{wait.place}{times}: {instead}"
