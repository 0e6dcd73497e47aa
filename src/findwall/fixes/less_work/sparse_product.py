"""Multiply with a matrix that is mostly zeros in sparse form.

What it does:
The adjacency of a graph, a mesh's operator, an incidence or pooling matrix: a dense product multiplies with
every zero of it, and reads them all. In CSR form there are its other numbers alone. It is made once, before
the loop; where gradients go through the product, so is that of the transposed matrix:

    class Product(torch.autograd.Function):             # matrix @ x
        @staticmethod
        def forward(ctx, matrix, turned, x):
            ctx.turned = turned
            return torch.sparse.mm(matrix, x)

        @staticmethod
        def backward(ctx, gradient):
            return None, None, torch.sparse.mm(ctx.turned, gradient.contiguous())

    matrix, turned = adjacency.to_sparse_csr(), adjacency.t().to_sparse_csr()    # before the loop
    y = Product.apply(matrix, turned, x)                                         # instead of adjacency @ x

`torch.sparse.mm(matrix, x)` alone gives the same gradients, and turns the matrix round in each backward pass.
From the right it is `torch.sparse.mm(turned, x.t()).t()` for `x @ adjacency`.

When it does not help:
A matrix that every step makes anew has to be brought into that form in every step. One that is some per cent
full is multiplied as fast with its zeros: a product reads a row of the other side for each number.

Risk:
Sums are added in another order: results differ in the last bits. Numbers that were only small are kept.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from findwall.facts.likely_times import pass_ns
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    lines,
    no_use,
    on_cores,
    rows_of,
    time_of,
)
from findwall.fixes.less_work.removed_work import scaled
from findwall.model.catalogue import UNNEEDED
from findwall.model.dataflow import SparseProduct
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change, Scale


def plain(torch: Any, dense: Any, matrix: Any, turned: Any, x: Any) -> Any:
    """As it is written today."""
    return dense @ x


def cheaper(torch: Any, dense: Any, matrix: Any, turned: Any, x: Any) -> Any:
    """With its other numbers alone."""
    return _product(torch).apply(matrix, turned, x)


@cache
def _product(torch: Any) -> Any:
    def forward(context: Any, matrix: Any, turned: Any, x: Any) -> Any:
        context.turned = turned
        return torch.sparse.mm(matrix, x)

    def backward(context: Any, gradient: Any) -> Any:
        return None, None, torch.sparse.mm(context.turned, gradient.contiguous())

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Product", (torch.autograd.Function,), methods)


def use(facts: Facts) -> Outcome:
    if facts.sparse is None:
        return cannot_tell("sparse-product/not-seen")
    if not facts.sparse:
        return no_use("sparse-product/none")
    needless = next((one for one in facts.unneeded if one.kind == "zeros"), None)
    if needless is None:
        fullest = min(facts.sparse, key=lambda one: one.share)
        return no_use("sparse-product/too-full", some_share=fullest.share)
    found = [one for one in facts.sparse if np.isin(one.atoms, needless.atoms).any()]
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    claim = Claim(
        "sparse-product/in-rows",
        {
            "spent_ms": time_of(facts, needless.atoms),
            "each": longest.share * longest.columns,
            "rows": longest.rows,
            "columns": longest.columns,
            "on_left": longest.on_left,
            "trains": len(longest.backward) > 0,
        },
        places=lines(
            *dict.fromkeys(one.place for one in sorted(found, key=lambda one: -time_of(facts, one.atoms)))
        ),
    )
    rows = np.unique(rows_of(facts, needless.atoms))
    return Use(
        claim,
        Change((Scale(rows, np.zeros(len(rows))),)),
        likely=lambda made: scaled(facts, needless) if on_cores(facts) else _likely(facts, found),
        rewrites=tuple(_rewrite(facts, one) for one in found),
    )


def _likely(facts: Facts, found: list[SparseProduct]) -> Change:
    """Each product as a pass over the bytes that it moves then."""
    change = Change()
    for one in found:
        for atoms, left in zip((one.forward, one.backward), one.left, strict=True):
            rows = np.unique(rows_of(facts, atoms))
            calls = len(np.unique(facts.kernels.op[facts.atoms.index[atoms]]))
            spent = float(facts.timeline.events.duration[rows].sum())
            part = pass_ns(facts, one.nbytes) * calls / max(spent, 1.0)
            if left < 1.0:
                change += Change((Scale(rows, np.full(len(rows), min(part, 1.0))),))
    return change


def _rewrite(facts: Facts, one: SparseProduct) -> Rewrite:
    entries, trains = max(round(one.entries), 1), len(one.backward) > 0
    return Rewrite(
        "sparse-product",
        (
            Draw((one.rows, one.columns), one.dtype),
            Draw((one.rows, one.columns), one.dtype, entries=entries),
            Draw((one.columns, one.rows), one.dtype, entries=entries),
            Draw((one.columns, one.width), one.dtype, has_gradient=trains),
        ),
        np.unique(rows_of(facts, one.atoms)),
        len(np.unique(facts.kernels.op[facts.atoms.index[one.forward]])),
        trains,
    )


FIX = Fix((UNNEEDED,), "safe", use, reorders=True, removes=True)
