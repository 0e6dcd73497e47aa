"""Let all experts multiply in a few calls: tokens sorted by their expert, products in groups.

What it does:
A loop over experts asks the device in every round which tokens are this expert's, fetches them,
multiplies and adds them back: a dozen small kernels a round, and a wait. Sorted by expert once, the
tokens of each lie in one piece; one grouped product (`torch._grouped_mm`, or `bmm` on pieces padded to a
fixed capacity) does all of them, and one `index_add` puts them back. Nothing waits for a size.

When it does not help:
Experts that are few and large: then each product fills the device by itself. Where the step waits for
something else.

Risk:
Sums of a token's experts are added in another order. A capacity that is too small drops tokens: padding
to the most tokens an expert has keeps all of them, and costs what the fullest one takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.facts.facts import of_class
from findwall.facts.user_lines import line_of
from findwall.facts.waiting_rounds import Rounds, waiting_rounds
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    free_launches,
    no_use,
    pieces,
    rows_of,
    small_kernels,
    to_floor,
)
from findwall.model.catalogue import MATRIX_CLASSES, WORTH_IT
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, Drop, NoWait, Replace
from findwall.replay.curves import curves
from findwall.work.work_facts import WorkFacts


def use(facts: Facts) -> Outcome:
    found = waiting_rounds(facts)
    if found is None or not found.multiplies:
        return no_use("group-experts/none")
    launched = len(found.atoms) / facts.steps.count
    if launched <= WORTH_IT * small_kernels(facts):
        return no_use("group-experts/few")
    figures: Figures = {
        "rounds": found.count / found.loops,
        "loops": found.loops,
        "issued": launched,
        "pieces": pieces(facts),
    }
    line = line_of(facts, found.asks)
    claim = Claim(
        "group-experts/sorted",
        figures,
        {"op": facts.timeline.name_of(found.asks)},
        [line] if line is not None else [],
    )
    waits = Change((NoWait(calls=found.waits),))
    best = to_floor(facts, found.atoms) + free_launches(facts, found.atoms) + waits
    return Use(claim, best, likely=lambda made: _merged(facts, found) + waits)


def _merged(facts: Facts, found: Rounds) -> Change:
    """Of each op the kernels of one round, which do the work of all rounds of their loop."""
    taken = facts.kernels.duration[facts.atoms.index[found.atoms]].astype(np.float64)
    floor = facts.kernels.floor[facts.atoms.index[found.atoms]]
    product = of_class(facts, *MATRIX_CLASSES)[found.atoms]
    kept: list[int] = []
    ns: list[float] = []
    gone: list[I64] = []
    order = np.argsort(found.group, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(found.group[order])) + 1):
        stay = max(round(len(part) / int(found.in_a_loop[part[0]])), 1)
        kept += part[:stay].tolist()
        ns += [_ns(facts, found.atoms[part], taken[part], floor[part], bool(product[part[0]])) / stay] * stay
        gone.append(part[stay:])
    rows = rows_of(facts, found.atoms)
    dropped = rows[np.concatenate(gone)] if gone else rows[:0]
    return Change((Replace(rows[np.array(kept, np.int64)], np.array(ns)), Drop(dropped)))


def _ns(facts: WorkFacts, atoms: I64, taken: F64, floor: F64, product: bool) -> float:
    """One kernel with the work of several: as fast as such kernels are, and no slower than they were."""
    if np.isnan(floor).any():
        return float(taken.sum())
    name = f"matmul/{facts.math(int(atoms[0]))}" if product else "fused/chain"
    likely = curves().likely_ns(name, np.array([max(float(floor.sum()), 1.0)]))
    return min(float(likely[0]), float(taken.sum()))


def plain(torch: Any, tokens: Any, expert: Any, weights: Any) -> Any:
    """One expert after the other: each is asked which tokens are its own."""
    out = torch.zeros_like(tokens @ weights[0])
    for one in range(len(weights)):
        (rows,) = torch.where(expert == one)
        out = out.index_add(0, rows, tokens[rows] @ weights[one])
    return out


def cheaper(torch: Any, tokens: Any, expert: Any, weights: Any) -> Any:
    """Sorted by expert, in pieces of the fullest one's length, one batched product."""
    order = torch.argsort(expert, stable=True)
    sorted_expert = expert[order]
    counts = torch.zeros(len(weights), dtype=torch.long, device=expert.device).index_add(
        0, expert, torch.ones_like(expert)
    )
    first = torch.cumsum(counts, 0) - counts
    place = torch.arange(len(order), device=order.device) - first[sorted_expert]
    padded = tokens.new_zeros(len(weights), int(counts.max()), tokens.shape[1])
    padded = padded.index_put((sorted_expert, place), tokens[order])
    done = torch.bmm(padded, weights)
    return (
        torch.zeros_like(done[0, :1]).expand(len(tokens), -1).index_add(0, order, done[sorted_expert, place])
    )


FIX = Fix(("launch-bound", "host-sync"), "safe", use, reorders=True)
