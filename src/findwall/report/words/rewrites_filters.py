"""The words of rewrites of filters and scans."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.model.short_kernel_names import bare
from findwall.report.words import Words, fill, number
from findwall.report.words.amounts import at


def _apart(claim: Claim) -> str:
    dims = int(number(claim, "dims"))
    first = ", ".join(["{window}", *["1"] * (dims - 1)])
    return fill(
        "Filter{where} one dimension after the other, if the {sides} window is a box, a Gaussian or another "
        "product of one filter for each dimension: {taps:,} products for each number instead of "
        f"{{products:,}}. For a box that is `F.avg_pool{dims}d(x, ({first}), stride=1, padding=…) * "
        "{window}`, and the like for the other sides. Today it takes {spent_ms:per_step}.",
        claim,
        where=at(claim),
    )


def _banded(claim: Claim) -> str:
    along = "" if number(claim, "dims") == IMAGE_DIMS else ", and the like along the others"
    return fill(
        "Filter{where} by products with a banded matrix, if the {sides} window is a box, a Gaussian or "
        "another product of one filter for each dimension: `band @ x @ band.T`, where `band` is as large as "
        f"the image's side and has the {{window}} taps on its diagonals{along}. Today it takes "
        "{spent_ms:per_step} and reaches {reached_share:share} of the ceiling.",
        claim,
        where=at(claim),
    )


def _turned(claim: Claim) -> str:
    dim, name = int(number(claim, "dim")), bare(claim.names["op"])
    return fill(
        f"Scan{{where}} along the innermost dimension, `x.transpose({dim}, -1).contiguous().{name}(-1)` "
        f"turned back: {_down(claim)}.",
        claim,
        where=at(claim),
    )


def _before(claim: Claim) -> str:
    return fill(
        "Sum{where} before the factor is broadcast, if what is summed is that product: "
        "`torch.cumsum(f, {dim}) * factor` is the same over {small:,} numbers instead of {numbers:,}. Turn f "
        f"so that it is summed along its innermost dimension. Today {_down(claim)}.",
        claim,
        where=at(claim),
    )


def _down(claim: Claim) -> str:
    """What makes columns slow: on a GPU a thread's own waits, on a CPU the cache."""
    if claim.figures.get("on_cores"):
        return (
            "along dimension {dim} each of {columns:,} columns fetches its {length:,} numbers from cache "
            "lines of their own, which takes {spent_ms:per_step}"
        )
    return (
        "along dimension {dim} each of {columns:,} threads goes down {length:,} numbers alone, "
        "which takes {spent_ms:per_step}"
    )


IMAGE_DIMS = 2


def _maps(claim: Claim) -> str:
    figures = claim.figures
    places = ", ".join([":", ":"] + ["None"] * int(number(claim, "dims")))
    before = f" * style[{places}]" if figures["reads"] else ""
    behind = f" * out[{places}]" if figures["makes"] else ""
    window = "(2, 3)" if number(claim, "dims") == 2 else "window"
    lengths = f", where `out = (style.square() @ weight.square().sum({window}).t() + eps).rsqrt()`"
    return fill(
        "Scale the maps instead of a weight for each sample{where}: "
        "`F.conv{dims}d(x{before}, weight, ...){behind}`{lengths}. Today {samples} weights of {shapes} are "
        "made and convolved with one by one, which takes {spent_ms:per_step}.",
        claim,
        where=at(claim),
        before=before,
        behind=behind,
        lengths=lengths if figures["lengths"] else "",
    )


WORDS: dict[str, Words] = {
    "separable-filter/none": (
        "no convolution filters each channel by itself over a large window with a weight that is not trained"
    ),
    "separable-filter/little": "filters over a large window take only {spent_ms:per_step}",
    "separable-filter/apart": _apart,
    "scale-activations/none": "no convolution is given a weight for each sample that is one weight, scaled",
    "scale-activations/not-seen": (
        "nobody saw what the weights of convolutions are made of (`findwall run` follows tensors)"
    ),
    "scale-activations/as-good": "scaling the maps would take as long as scaling the weights does",
    "scale-activations/maps": _maps,
    "separable-filter/banded": _banded,
    "scan-innermost/none": "nothing is scanned (cumsum, cumprod) down columns",
    "scan-innermost/near": "scans down columns that could be faster take only {spent_ms:per_step}",
    "scan-innermost/turned": _turned,
    "scan-innermost/before": _before,
    "advise/scan-innermost": (
        "scan along the innermost dimension, and before a factor makes the tensor larger (scan-innermost)"
    ),
    "advise/separable-filter": (
        "filter one dimension after the other, if the window is a box or a Gaussian (separable-filter)"
    ),
}
