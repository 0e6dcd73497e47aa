"""Take a cheaper routine of linear algebra: a solve instead of an inverse, `eigh` instead of an SVD.

What it does:
Routines differ by far in what they cost, most of all on a GPU and for batches of small matrices, where some
go through the batch one by one and wait for each. What is wanted decides:

    torch.linalg.solve(a, b)              # instead of torch.linalg.inv(a) @ b, pinv(a) @ b
    torch.linalg.cholesky_ex(a)           # of a symmetric positive definite one: half of an LU, and no wait
    torch.linalg.eigh(a.mT @ a)           # instead of svd(a), where a is tall and its columns few
    torch.linalg.svdvals(a), eigvalsh(a)  # where no vectors are read
    torch.linalg.inv_ex(a)                # does not wait to see whether it failed

When it does not help:
Matrices are large enough to fill the device, and the routine is the one that fits.

Risk:
`eigh(a.mT @ a)` squares the condition number: small singular values lose half of their digits. A solve
fails where a pseudo-inverse does not: add a small multiple of the identity. `_ex` routines report
failure only to who looks.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.step_traits import calls_around
from findwall.facts.user_lines import line_of
from findwall.facts.waits import routine_waits
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gone, lines, no_use, rows_of, time_of
from findwall.replay.change import Change, NoHostWork, NoWait

MOVES = ("slow-kernels", "host-sync", "launch-bound", "host-work")
# What to take instead, by the routine that is called; the outermost first.
INSTEAD = {
    "aten::linalg_pinv": "pinv",
    "aten::linalg_svd": "svd",
    "aten::svd": "svd",
    "aten::linalg_svdvals": "svd",
    "aten::linalg_inv": "inv",
    "aten::inverse": "inv",
    "aten::linalg_eig": "eig",
    "aten::linalg_eigvals": "eig",
    "aten::linalg_lstsq": "lstsq",
}


def use(facts: Facts) -> Outcome:
    around = calls_around(facts, np.arange(len(facts.atoms.index)), frozenset(INSTEAD))
    atoms = np.flatnonzero(around >= 0)
    waits = routine_waits(facts)
    if not len(atoms):
        return no_use("linalg-route/none")
    change = gone(facts, atoms) + Change((NoHostWork(rows_of(facts, atoms)), NoWait(calls=waits)))
    rows, counts = np.unique(around[atoms], return_counts=True)
    most = int(rows[np.argmax(counts)])
    name = facts.timeline.name_of(most)
    figures = {"calls": len(rows) / facts.steps.count, "spent_ms": time_of(facts, atoms)}
    return Use(
        Claim(f"linalg-route/{INSTEAD[name]}", figures, {"op": name}, lines(line_of(facts, most))),
        change,
        MOVES,
        condition="routine-gives-what-is-read",
    )


FIX = Fix(MOVES, "changes-numerics", use, removes=True)
