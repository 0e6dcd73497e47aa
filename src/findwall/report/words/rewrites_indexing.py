"""The words of rewrites of what takes rows by number, looks them up or puts them in order."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill
from findwall.report.words.amounts import at


def _index_select(claim: Claim) -> str:
    way = "x.index_select(0, idx)"
    if not claim.figures["flat"]:
        way = "x.index_select(0, idx.flatten()).unflatten(0, idx.shape)"
    sorts = "sorts its {indices:,} indices and adds the gradients of equal ones one after the other"
    at_once = "them all at once"
    if claim.figures.get("on_cores"):
        sorts, at_once = "adds the gradients of its {indices:,} indices number by number", "whole rows"
    return fill(
        f"Write `{{way}}` for `x[idx]`{{where}}: the backward of `x[idx]` {sorts}, which takes "
        f"{{spent_ms:per_step}}; that of index_select adds {at_once}. No index may be negative.",
        claim,
        way=way,
        where=at(claim),
    )


def _look_up(claim: Claim) -> str:
    ways = {
        "fetches": "`F.embedding(idx, table)`",
        "adds": "`index_add_(0, idx, x)` for sums of each class",
        "counts": "the same of ones to count",
    }
    return fill(
        "Look up by `idx` instead of multiplying with `one_hot(idx, {classes})`{where}, if nothing else "
        "reads that: {ways}. The {indices:,} × {classes:,} numbers take {spent_ms:per_step}.",
        claim,
        ways=listed([words for key, words in ways.items() if claim.figures[key]]),
        where=at(claim),
    )


def _in_rows(claim: Claim) -> str:
    way = "`torch.sparse.mm(a, x)` for `a @ x`"
    if not claim.figures["on_left"]:
        way = "`torch.sparse.mm(a.t().to_sparse_csr(), x.t()).t()` for `x @ a`"
    turned = "; for gradients keep `a.t()` in that form, too" if claim.figures["trains"] else ""
    return fill(
        "Call `a = a.to_sparse_csr()` once before the loop, and write {way}{where}{turned}. In each of the "
        "{rows:,} rows of that matrix only about {each:,.3g} of {columns:,} numbers are not zero, and its "
        "products take {spent_ms:per_step}.",
        claim,
        way=way,
        where=at(claim),
        turned=turned,
    )


WORDS: dict[str, Words] = {
    "index-select/none": "no rows are taken with `x[idx]` and given gradients",
    "index-select/no-shapes": "what `x[idx]` takes is unknown: record the trace with record_shapes=True",
    "index-select/other-index": (
        "what is indexed with gradients is a mask, several indices, or not the first dimension"
    ),
    "index-select/sixteen-bits": "in 16 bits index_select rounds gradients after every addition",
    "index-select/as-fast": "sorting and adding the rows is as fast as atomics would be",
    "index-select/write": _index_select,
    "topk/none": "nothing is sorted in this step",
    "topk/all-read": "all that is sorted is read, or a stable order is asked for",
    "topk/no-shapes": (
        "how much of what is sorted is read is unknown: record the trace with record_shapes=True"
    ),
    "topk/read-otherwise": (
        "whether the whole order is needed is unknown: more than slices of the first few reads such a tensor"
    ),
    "topk/short-rows": "the rows are so short that a sort takes no longer than a selection",
    "topk/pick": (
        "Call `x.topk({few}[[, dim={axis}]][[{largest:unless}, largest=False]])` instead of sorting"
        "[[ at {places[0]}]], if nothing reads the rest: only the first {few:,} of each row of {length:,} "
        "are read, and sorting {rows:,} such rows takes {spent_ms:per_step}."
    ),
    "lookup-not-onehot/none": "the step makes no one-hot rows",
    "lookup-not-onehot/no-product": "nothing is multiplied with the one-hot rows",
    "lookup-not-onehot/no-shapes": (
        "how many one-hot rows there are is unknown: record the trace with record_shapes=True"
    ),
    "lookup-not-onehot/read-otherwise": (
        "whether the one-hot rows are needed is unknown: an op that is no product reads as many numbers"
    ),
    "lookup-not-onehot/few-classes": "there are so few classes that a lookup is no faster",
    "lookup-not-onehot/look-up": _look_up,
    "sparse-product/none": "no product has a large matrix that stays as it is and is not trained",
    "sparse-product/not-seen": "nobody saw how much of its matrices is zero (`findwall run` looks at them)",
    "sparse-product/too-full": (
        "{some_share:share} of the emptiest matrix that never changes is not zero, so that a sparse product "
        "takes as long"
    ),
    "sparse-product/in-rows": _in_rows,
}
