"""The words of rewrites of what takes rows by number, looks them up or puts them in order."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill
from findwall.report.words.amounts import at


def _index_select(claim: Claim) -> str:
    way = "x.index_select(0, idx)"
    if not claim.figures["flat"]:
        way = "x.index_select(0, idx.flatten()).unflatten(0, idx.shape)"
    return fill(
        "Write `{way}` for `x[idx]`{where}: the backward of `x[idx]` sorts its {indices:,} indices and adds "
        "the gradients of equal ones one after the other, which takes {spent_ms:per_step}; that of "
        "index_select adds them all at once. No index may be negative.",
        claim,
        way=way,
        where=at(claim),
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
}
