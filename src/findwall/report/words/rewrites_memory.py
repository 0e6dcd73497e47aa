"""The words of rewrites that move less: transforms of another length, rows instead of tables, buffers."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill, spoken
from findwall.report.words.amounts import at, listed


def _smooth(claim: Claim) -> str:
    return fill(
        "Pad the Fourier transforms{where} from {named}, the next even length made of 2, 3, 5 and 7 alone, "
        "and crop the result: the library has only slow kernels for other lengths, which take "
        "{spent_ms:per_step}. Another length is another transform, so compare the losses.",
        claim,
        where=at(claim),
        named=listed(map(spoken, claim.parts)),
    )


def _rows(claim: Claim) -> str:
    way = " and an optimizer for such gradients (SparseAdam, SGD, Adagrad)"
    if claim.figures["takes_sparse"]:
        way = ""
    elif "adam" in claim.names.get("optimizer", "").lower():
        way = " and `torch.optim.SparseAdam` for it"
    return fill(
        "Use `nn.Embedding(…, sparse=True)`{where}{way}: of {rows:,} rows a step looks up at most "
        "{looked_up:,.0f}, and {spent_ms:per_step} goes through all of them. Others then get no momentum and "
        "no weight decay: compare losses.",
        claim,
        where=at(claim),
        way=way,
    )


WORDS: dict[str, Words] = {
    "sparse-embedding/none": "no table in this step has far more rows than are looked up",
    "sparse-embedding/scaled": "`scale_grad_by_freq` has no sparse gradient",
    "sparse-embedding/elsewhere": (
        "a product or another gradient has as many rows as the table, so it may be used whole, and then its "
        "gradient is not sparse"
    ),
    "sparse-embedding/shared": (
        "the step talks to other ranks, and whether its way to share gradients takes sparse ones is not known"
    ),
    "sparse-embedding/untold": (
        "how much of the optimizer's update is the table's is not known: the trace has no sizes of its lists"
    ),
    "sparse-embedding/little": "whole tables take only {spent_ms:per_step}",
    "sparse-embedding/rows": _rows,
    "advise/sparse-embedding": (
        "update only the rows of the embedding table that a step looks up (sparse=True, with SparseAdam)"
    ),
    "smooth-fft/none": "no Fourier transform runs in this step",
    "smooth-fft/no-shapes": "how long the Fourier transforms are is not known: record_shapes=True",
    "smooth-fft/smooth": "the Fourier transforms have lengths made of 2, 3, 5 and 7 alone",
    "smooth-fft/near": (
        "Fourier transforms of lengths with a larger prime than 7 run far under what memory allows for only "
        "{spent_ms:per_step}"
    ),
    "advise/smooth-fft": (
        "pad the transforms to lengths made of 2, 3, 5 and 7 alone, as the library has fast kernels for those"
    ),
    "channels-last/transformed": (
        "Fourier transforms along the sides of images want channels first, so each would be turned back"
    ),
    "smooth-fft/length": "{from} to {to}",
    "smooth-fft/pad": _smooth,
}
