"""Write what is new into a buffer made once, instead of copying all that is there to put it behind.

What it does:
`cache = torch.cat([cache, new], dim=2)` makes another tensor at each step and copies the whole cache into it,
to add a token: work that grows with the text. A buffer that is as long as the text may get is made once, and
each step writes its own part alone:

    buffer = torch.empty(batch, heads, longest, width, device=…, dtype=…)
    buffer[:, :, n : n + 1] = new
    keys = buffer[:, :, : n + 1]  # a view: nothing is copied

Where ops set themselves up for every new length, hand them the whole buffer under a mask, whose shape never
changes. Hugging Face's generate does both with `cache_implementation="static"`.

When it does not help:
What is joined is short beside the rest of the step, or it does not grow from step to step. In training, where
the backward pass needs every earlier result as it was, nothing may be written in place.

Risk:
The numbers are the same. The longest text must be known, and the buffer takes its memory from the start. What
still holds an earlier view sees what is written later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.facts.likely_times import to_likely
from findwall.facts.memory_copies import Appended, appended, appended_ms
from findwall.facts.user_lines import line_of
from findwall.facts.waits import RECOMPILATION, grows
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    gone,
    ideal,
    is_training,
    lines,
    no_use,
    on_cores,
    rows_of,
    unless,
)
from findwall.model.catalogue import MENTION_SHARE, WORTH_IT
from findwall.replay.change import Change, Scale
from findwall.replay.curves import curves
from findwall.units import ms

# A job that sets itself up for every new length is uneven, too.
MOVES = ("layout-copies", RECOMPILATION, "unstable-steps")


def use(facts: Facts) -> Outcome:
    found = appended(facts)
    if found.op < 0:
        one_step = facts.steps.count == 1
        return cannot_tell("buffer-once/one-step") if one_step else no_use("buffer-once/none")
    spent = appended_ms(facts)
    if spent <= MENTION_SHARE * ms(facts.step):
        return no_use("buffer-once/little", spent_ms=spent)
    sets_up = grows(facts) and facts.spent()[RECOMPILATION] >= WORTH_IT * facts.step
    figures = {
        "spent_ms": spent,
        "calls": len(found.atoms) / facts.steps.count,
        "dim": found.dim,
        "added": found.added,
        "sets_up": sets_up,
    }
    best = gone(facts, found.atoms)
    return Use(
        Claim("buffer-once/write", figures, places=lines(line_of(facts, found.op))),
        # At best its shape never changes, and nothing is set up for a new one.
        best + ideal(facts, RECOMPILATION) if sets_up else best,
        MOVES if sets_up else MOVES[:1],
        # What is set up while lengths are new hides what the copies take: nobody knows until that is over.
        likely=None if sets_up else lambda made: _likely(facts, found),
        uncurved=on_cores(facts),
    )


def _likely(facts: Facts, found: Appended) -> Change:
    """A kernel for each that copies the new part alone; cores take as long for each byte as today."""
    if on_cores(facts):
        rows, first = np.unique(rows_of(facts, found.atoms), return_index=True)
        return Change((Scale(rows, 1.0 - found.old[first]),))
    index = facts.atoms.index[found.atoms]
    floor = np.maximum(np.nan_to_num(facts.kernels.floor[index]) * (1.0 - found.old), 1.0)
    today = facts.kernels.duration[index]
    return to_likely(facts, found.atoms, np.minimum(curves().likely_ns("pointwise", floor), today))


# -- the same cache, both ways -----------------------------------------------------------------------------


def plain(torch: Any, parts: list[Any], dim: int) -> Any:
    """All parts, each put behind a copy of those before."""
    found = parts[0]
    for part in parts[1:]:
        found = torch.cat([found, part], dim=dim)
    return found


def cheaper(torch: Any, parts: list[Any], dim: int) -> Any:
    """The same in a buffer made once."""
    shape = list(parts[0].shape)
    shape[dim] = sum(part.size(dim) for part in parts)
    buffer = torch.empty(shape, dtype=parts[0].dtype, device=parts[0].device)
    at = 0
    for part in parts:
        buffer.narrow(dim, at, part.size(dim)).copy_(part)
        at += part.size(dim)
    return buffer.narrow(dim, 0, at)


FIX = Fix(MOVES, "needs-review", use, (unless("buffer-once/trains", is_training),), removes=True)
