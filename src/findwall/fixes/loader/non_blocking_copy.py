"""Do not wait for copies from pinned memory: `.to(device, non_blocking=True)`.

What it does:
From pinned memory the device fetches a batch by itself, yet `.to(device)` still makes the host wait until it
has arrived, and with it everything that was queued before. Then the queue is empty and the device waits
for the host. Asked not to block, the host goes on at once and launches the step behind the copy:

    batch = batch.to(device, non_blocking=True)

When it does not help:
The memory is pageable: such a copy blocks whatever is asked for, and has to be pinned first. The host is so
far ahead that the device never runs dry while it waits. The copy itself takes as long as before; where that
is what costs, copy a batch ahead on another stream (prefetch-batches).

Risk:
The pinned buffer must not be written to before its copy is done; a DataLoader with pin_memory=True takes a
new one for each batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.facts.memory_copies import uploads
from findwall.facts.waits import shared_idle, waits
from findwall.fixes import Claim, Facts, Fix, Outcome, lines, no_use, step_ms, surely, unless
from findwall.fixes.loader.loader_refusals import COPIES_ON_CORES, COPIES_UNTOLD
from findwall.fixes.loader.pinned_copies import pinned_copies
from findwall.model.catalogue import WAITED_FOR_SHARE
from findwall.model.intervals import I64
from findwall.patches.editor import Editor
from findwall.replay.change import Change, NoWait
from findwall.step.call_names import SYNCHRONIZE, blocking_rows, in_window
from findwall.step.links import PAGEABLE
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.units import ms


def use(facts: Facts) -> Outcome:
    calls = _waits_for_pinned(facts)
    if len(calls) == 0:
        return no_use("non-blocking-copy/no-wait")
    waited = ms(float(shared_idle(facts, "copy-exposed", calls).sum()))
    if waited <= WAITED_FOR_SHARE * step_ms(facts):
        return no_use("non-blocking-copy/far-ahead")
    line = next((wait.line for wait in waits(facts, "copy-exposed", calls) if wait.line), None)
    claim = Claim("non-blocking-copy/do-not-wait", {"waits_ms": waited}, places=lines(line))
    return surely(claim, Change((NoWait(calls=calls),)))


def _waits_for_pinned(facts: StepFacts) -> I64:
    """Calls that wait for a copy to the device that needs no host: the copy's own synchronize."""
    calls = in_window(facts, blocking_rows(facts, "copy-exposed"))
    calls = rows_matching(facts.timeline, calls, SYNCHRONIZE)
    events, links = facts.timeline.events, facts.links
    pageable = facts.queue.row[facts.timeline.named(PAGEABLE, facts.queue.row)[events.name[facts.queue.row]]]
    launches = links.launch[pageable]
    ops = links.op[launches[launches >= 0]]
    found: I64 = calls[~np.isin(links.op[calls], ops[ops >= 0])]
    return found


def apply(torch: Any, effect: Effect) -> None:
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here to copy to")
        return
    effect.missed("no copy from pinned memory was seen that made the host wait")
    copies = pinned_copies(torch)
    copies.note(effect)
    effect.at_end(copies.told)


def patch(editor: Editor) -> None:
    for place in editor.places("copy"):
        editor.set_arguments(place, non_blocking="True")


FIX = Fix(
    ("copy-exposed",),
    "safe",
    use,
    (
        COPIES_ON_CORES,
        unless("copies/none", lambda facts: uploads(facts).ms <= 0),
        COPIES_UNTOLD,
        unless("non-blocking-copy/pageable", lambda facts: uploads(facts).pageable),
    ),
    apply=apply,
    live=apply,
    patch=patch,
)
