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


WORDS: dict[str, Words] = {
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
