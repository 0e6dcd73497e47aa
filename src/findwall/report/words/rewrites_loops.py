"""The words of rewrites of loops, pairs, copies and number formats; and of any rewrite that was probed."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill
from findwall.report.words.amounts import at


def _multiply(claim: Claim) -> str:
    scaled = "`a / scale` and `b / scale`, then " if claim.figures["scaled"] else ""
    return fill(
        "Write the squared distances{where} as {scaled}`a.square().sum(-1)[:, None] + b.square().sum(-1) - "
        "2 * a @ b.mT`, clamped at 0 (torch.cdist does that and takes the root): the {left:,} × {right:,} × "
        "{width:,} differences take {spent_ms:per_step}.",
        claim,
        where=at(claim),
        scaled=scaled,
    )


def _lists(claim: Claim) -> str:
    waits = ", and the host waits for {waits:,.0f} of them" if claim.figures["waits"] else ""
    clips = ", which clips too" if claim.figures["clips"] else ""
    on_cores = claim.figures.get("on_cores")
    launches = "calls {kernels:,.0f} ops" if on_cores else "launches {kernels:,.0f} kernels"
    return fill(
        f"Use `torch.nn.utils.clip_grad_norm_`{clips}, or `torch._foreach_norm`, and read its result once in "
        f"place of the loop over {{gradients:,.0f}} gradients{{where}}: that {launches} per "
        f"step{waits}. The norm of all is infinite or NaN where one number is.",
        claim,
        where=at(claim),
    )


def _zeros(claim: Claim) -> str:
    asks = (
        "the host asks {times:times} per step how many there are, the device waits {waits_ms:per_step}, and "
    )
    if claim.figures.get("on_cores"):
        asks = ""
    return fill(
        "Write `torch.where(mask, x, 0).sum() / mask.sum()` for `x[mask].mean()`{where}, if what is picked "
        f"is only summed: {asks}picking takes {{spent_ms:per_step}}.",
        claim,
        where=at(claim),
    )


def _put_back(claim: Claim) -> str:
    asks = "" if claim.figures.get("on_cores") else ", for which the device waits {waits_ms:per_step}"
    return fill(
        "Write `y = torch.where(mask, f(x), y)` for `y[mask] = f(x[mask])`{where}: picking and putting back "
        f"takes {{spent_ms:per_step}}{asks}.",
        claim,
        where=at(claim),
    )


def _bytes(claim: Claim) -> str:
    pinned = " from pinned memory" if claim.figures["pageable"] else ""
    return fill(
        "Copy the images{where} as uint8{pinned} and make floats of them on the device, if they were bytes "
        "before: {copied_bytes:bytes} per step goes over the link, {size} bytes for each number, and the "
        "device waits {waits_ms:per_step} for copies.",
        claim,
        where=at(claim),
        pinned=pinned,
    )


def _sum_of_products(claim: Claim) -> str:
    return fill(
        "Take the {results:,} sums of {pairs:,} products{where} as a product of matrices (`a.mT @ b` or "
        "`torch.einsum`): today each product is written and read again, which takes {spent_ms:per_step}.",
        claim,
        where=at(claim),
    )


def _doubling(claim: Claim) -> str:
    return fill(
        "Do the {rounds:,} rounds of {ops} small ops{where} as a scan, if each is linear in the one before: "
        "{doublings} doublings over all of them at once (or torch.cumsum where nothing is scaled), in place "
        "of {issued:,.0f} {pieces} per step. `findwall explain scan-loop` has a sketch.",
        claim,
        where=at(claim),
    )


def _other_way(claim: Claim) -> str:
    matrices, from_left = claim.figures["matrices"], claim.figures["from_left"]
    way = f"Multiply the {matrices} matrices{at(claim)} in another order (`torch.linalg.multi_dot` picks it)"
    if from_left is not None:
        now, then = "`(a @ b) @ c`", "`a @ (b @ c)`"
        way = f"Multiply {then if from_left else now} instead of {now if from_left else then}{at(claim)}"
    notes = ", scaling the smaller product" if claim.figures["scaled"] else ""
    if claim.figures["doubtful"]:
        notes += ", if nothing else reads the product in the middle"
    return fill(
        "{way}{notes}: for {shapes} that is {left_share:share} of the multiplications, and today's "
        "order takes {spent_ms:per_step}.",
        claim,
        way=way,
        notes=notes,
    )


def _there(claim: Claim) -> str:
    way = "Draw the {numbers:,} random numbers{where} on the device"
    if not claim.figures["drawn"]:
        way = "Make the tensor of {numbers:,} numbers{where} on the device"
    return fill(
        way + " (`device=`): the host takes {spent_ms:per_step} to make such tensors and to copy "
        "{copied_bytes:bytes}.",
        claim,
        where=at(claim),
    )


WORDS: dict[str, Words] = {
    "rewrite/not-faster": (
        "both forms were run on this device, and the other is not faster: {now_ms:per_step} of kernels "
        "today, {then_ms:ms} in its way"
    ),
    "pairwise-product/none": "no differences of all pairs are squared and summed",
    "pairwise-product/sum": _sum_of_products,
    "pairwise-product/read-otherwise": (
        "whether the differences of all pairs are needed is unknown: something else reads such a tensor"
    ),
    "pairwise-product/short": "the differences of all pairs take no longer than a product would",
    "pairwise-product/multiply": _multiply,
    "foreach-checks/none": "no loop goes over the gradients to check or measure them",
    "foreach-checks/few": "the loop over gradients launches next to nothing of the step",
    "foreach-checks/lists": _lists,
    "narrow-copies/none": "no images are copied to the device as floats",
    "narrow-copies/others": "most of what is copied to the device is not images",
    "narrow-copies/unknown-device": "what the device needs to make floats of bytes is unknown",
    "narrow-copies/bytes": _bytes,
    "product-order/none": "no product of two matrices goes straight into another product",
    "product-order/as-good": "products of three matrices are taken in the shorter order, or nearly so",
    "product-order/other-way": _other_way,
    "make-on-device/none": "the host makes no tensors only to copy them to the device",
    "make-on-device/little": "making and copying tensors takes only {spent_ms:per_step}",
    "make-on-device/there": _there,
    "advise/make-on-device": "draw or compute it on the device, if that is where it goes",
    "make-on-device/routine": (
        "Call torch's like of `{routine}` at {places[0]} on the device, if its result is copied there "
        "(`torch.randperm(n, device=…)[:k]` for a choice without replacement): the host stood on that line "
        "in {samples_share:share} of the samples, and the device waits {waits_ms:per_step}."
    ),
    "cast-once/none": "no weights are converted in this step",
    "cast-once/trains": "the weights change in every step, so they are converted in every step",
    "cast-once/little": "converting weights takes only {spent_ms:per_step}",
    "cast-once/before": (
        "Convert the weights once, before the loop (`model.to(torch.bfloat16)`), if they stay as they are: "
        "{casts:,.0f} are converted in every step[[, at {places[0]}]], which takes {spent_ms:per_step}."
    ),
    "where-not-mask/none": "nothing is picked with a mask",
    "where-not-mask/needed": "few numbers are picked with a mask, or they are neither summed nor put back",
    "where-not-mask/little": "picking with masks takes next to nothing of the step",
    "where-not-mask/zeros": _zeros,
    "where-not-mask/put-back": _put_back,
    "scan-loop/none": "no loop carries a sum from round to round",
    "scan-loop/few": "the loop launches next to nothing of the step",
    "scan-loop/doubling": _doubling,
}
