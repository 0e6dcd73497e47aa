"""Do what is done row by row where there are fewer rows: pick first, repeat last.

What it does:
A layer, a norm or an activation gives each row its result whatever the other rows are, so it can change
places with what picks rows. Scores of all tokens of which one is read, a head over all places of which the
masked ones count, features of every node for the few of a batch: pick first, and the rest is never computed.
Rows that are fetched for every edge and then multiplied, a vector that is expanded over the tokens of its
sample: multiply first, and fetch or expand the results. So it is with places of a table or of an image that
are taken by number: rays of the pixels that are drawn, scores of the pairs that are asked for.

    scores = head(hidden[:, -1])            # instead of head(hidden)[:, -1]
    loss = F.cross_entropy(head(hidden[kept]), target[kept])      # kept = target != -100
    messages = layer(nodes)[source]         # instead of layer(nodes[source])
    scores = (nodes[a] * nodes[b]).sum(-1)  # instead of (nodes @ nodes.T)[a, b]

A layer over rows that were put together of two (`torch.cat([x[src], x[dst]], -1)`) is two layers, one a part:
their results are added behind the fetching.

When it does not help:
Where all rows are needed after all, as by a metric in other steps; where the results are far wider than the
rows, so that fetching them costs what the product saves. Rows that are wider than what is made of them, as of
a matrix of all pairs, cost as much to pick: pick them once, before the loop, where they never change.

Risk:
Sums are added in another order: results differ in the last bits. Dropout draws other numbers.
"""

from __future__ import annotations

import numpy as np

from findwall.fixes import Claim, Facts, Fix, Outcome, Use, lines, no_use, rows_of, time_of
from findwall.fixes.less_work.removed_work import left_of, scaled
from findwall.model.catalogue import UNNEEDED
from findwall.model.dataflow import Unneeded
from findwall.replay.change import Change, Longer
from findwall.work.work_facts import moving_ns

KINDS = ("dropped", "repeated")


def use(facts: Facts) -> Outcome:
    found = [one for one in facts.unneeded if one.kind in KINDS]
    if not found:
        return no_use("fewer-rows/none")
    most = found[0]
    claim = Claim(
        f"fewer-rows/{most.kind}",
        {
            "spent_ms": time_of(facts, most.atoms),
            "left_share": left_of(facts, most),
            "pick": most.pick or None,
        },
        places=lines(most.place),
    )
    everything = sum((scaled(facts, one, None) for one in found), Change())
    # Work right before what picks the rows changes places by one line; what lies before other products,
    # perhaps in another module, may stay as it is. What is done with repeated rows is called as a whole.
    nearest = sum(
        (scaled(facts, one, one.near if one.kind == "dropped" else None) for one in found), Change()
    )
    nearest += sum((_picking(facts, one) for one in found), Change())
    return Use(
        claim,
        everything,
        likely=lambda made: nearest,
        may=(lambda made: everything, lambda made: nearest),
        uncurved=True,
        condition="rows-are-enough",
    )


def _picking(facts: Facts, one: Unneeded) -> Change:
    """What the picked rows take to be copied in each step, where they are wider than what is made of them."""
    rows = np.unique(rows_of(facts, one.atoms))
    ns = moving_ns(facts, one.moved) * facts.steps.count / max(len(rows), 1)
    return Change((Longer(rows, np.full(len(rows), ns)),)) if ns > 0 else Change()


FIX = Fix((UNNEEDED,), "safe", use, reorders=True, removes=True)
