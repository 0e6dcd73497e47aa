"""The words of rewrites that move less: transforms of another length, rows instead of tables, buffers."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import MORE_THAN_ONCE, Words, fill, number, spoken
from findwall.report.words.amounts import at


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


def _written(claim: Claim) -> str:
    before = ":, " * int(number(claim, "dim"))
    again = ""
    if claim.figures["sets_up"]:
        again = " Read all of it under a mask, and no op is set up for a new length."
    return fill(
        "Write into a buffer made once (`buffer[{before}n:n+{added}] = new`){where} instead of `torch.cat`: "
        "{count} of the last step's result {take} {spent_ms:per_step}, and more as it grows.{again}",
        claim,
        before=before,
        where=at(claim),
        count=_copies(number(claim, "calls")),
        take="takes" if number(claim, "calls") < MORE_THAN_ONCE else "take",
        again=again,
    )


def _copies(calls: float) -> str:
    return "the copy" if calls < MORE_THAN_ONCE else f"{calls:,.0f} copies"


WORDS: dict[str, Words] = {
    "buffer-once/none": "no tensor here grows from step to step by being copied",
    "buffer-once/one-step": "whether what is joined grows from step to step takes two steps to see",
    "buffer-once/trains": "the backward pass needs earlier results as they were, so none is written in place",
    "buffer-once/little": "copies of what the last step left take only {spent_ms:per_step}",
    "fewer-copies/appended": "all that is copied is a result that grows from step to step: buffer-once",
    "buffer-once/write": _written,
    "advise/buffer-once": "write new values into a buffer made once, instead of torch.cat",
    "gain/after-set-up": (
        "that saves up to {saves_ms:ms} once no new length is set up ({waits_ms:per_step} today)"
    ),
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
