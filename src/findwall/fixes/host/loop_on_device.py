"""Do all rounds of a loop on the device: masks in place of what is left over, decided for all at once.

What it does:
A loop that keeps the best box, drops what overlaps it and goes on with the rest asks the device in every
round how much is left; so do beams that end and samples that are rejected. The size decides what the host
launches next, so the device runs dry in each round. Worked out for all at once (the whole table of
overlaps, scores of all beams) with a mask that says what still counts, the sizes stay fixed and nobody
waits.

When it does not help:
Rounds that need a result on the host for another reason. Tables that do not fit: of n boxes the overlaps
take n * n values. Where few rounds are enough, most of a table is worked out for nothing.

Risk:
It is another program with the same result: test it against the loop, ties and empty inputs among them.
Libraries have the common ones (`torchvision.ops.nms`, `batched_nms`).
"""

from __future__ import annotations

from findwall.facts.user_lines import line_of
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    gone,
    ideal,
    no_use,
    pieces,
    small_kernels,
)
from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.replay.change import Change, NoWait


def use(facts: Facts) -> Outcome:
    found = waiting_rounds(facts)
    if found is None:
        return no_use("loop-on-device/none")
    if found.multiplies:  # work of its own in each round: what shortens that is another fix
        return no_use("loop-on-device/multiplies")
    launched = len(found.atoms) / facts.steps.count
    if launched <= WORTH_IT * small_kernels(facts):
        return no_use("loop-on-device/few")
    figures: Figures = {"rounds": found.count, "ops": found.ops, "issued": launched, "pieces": pieces(facts)}
    figures = {**figures, **as_on_cores(facts)}
    line = line_of(facts, found.asks)
    claim = Claim(
        "loop-on-device/rounds",
        figures,
        {"op": facts.timeline.name_of(found.asks)},
        [line] if line is not None else [],
    )
    best = gone(facts, found.atoms) + Change((NoWait(calls=found.waits),))
    # Where most of the step is such a loop, so is most of what the host does for it.
    if launched > MAJORITY_SHARE * small_kernels(facts):
        return Use(claim, best + ideal(facts, *FIX.moves))
    return Use(claim, best, ("launch-bound", "host-sync"))


FIX = Fix(("launch-bound", "host-sync", "host-work"), "needs-review", use, removes=True)
