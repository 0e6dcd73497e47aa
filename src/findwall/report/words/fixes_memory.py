"""The words of fixes of memory: layouts, copies, the allocator, the optimizer's passes."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, per_step, spoken
from findwall.report.words.amounts import NAMED, at, op_names
from findwall.units import format_bytes, format_calls

CALLS_NAMED = NAMED + 1


def _turn(claim: Claim) -> str:
    copied, own = number(claim, "copied_ms"), number(claim, "own_copies_ms")
    between = "the convolutions read the other layout today"
    if copied > 0:
        between = f"{per_step(copied)} only reorders tensors"
    if own > 0:
        between += (
            f", {per_step(own)} of it by the job's own `.contiguous()` and `.permute`: drop them as well"
        )
    return f"Call `model.to(memory_format=torch.channels_last)` and do the same for its input; {between}."


def _segments(claim: Claim) -> str:
    return fill(
        "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`: shapes change from step to step, and the "
        "device waits {waits_ms:per_step} while cudaMalloc fetches memory ({count}).",
        claim,
        count=format_calls(number(claim, "calls")),
    )


def _copies(template: str) -> Words:
    def words(claim: Claim) -> str:
        named = "; ".join(op_names(claim.parts, NAMED))
        return fill(
            template + ": copies take {copies_ms:per_step}{named}.",
            claim,
            named=f" ({named})" if named else "",
        )

    return words


def _cache(template: str) -> Words:
    def words(claim: Claim) -> str:
        counted = listed(map(spoken, claim.parts[:CALLS_NAMED]))
        what = f"{counted} calls" if counted else "the allocator"
        return fill(template + ". The device waits {waits_ms:per_step} for {what}.", claim, what=what)

    return words


def _pin(claim: Claim) -> str:
    copied = number(claim, "copied_bytes")
    return fill(
        "Use `DataLoader(…, pin_memory=True)` (or `tensor.pin_memory()`) and `.to(device, "
        "non_blocking=True)`: {amount} from pageable memory, and the device waits {waits_ms:per_step} for "
        "it.",
        claim,
        amount=f"{format_bytes(copied)} per step comes" if copied > 0 else "batches come",
    )


def _own_stream(claim: Claim) -> str:
    copied = number(claim, "copied_bytes")
    return fill(
        "Copy the next batch{amount} {pin}on its own stream while this one is computed, or keep a small "
        "dataset on the device: the device waits {waits_ms:per_step} for copies.",
        claim,
        amount=f" ({format_bytes(copied)})" if copied > 0 else "",
        pin="from pinned memory " if claim.figures["pageable"] else "",
    )


def _do_not_wait(claim: Claim) -> str:
    return fill(
        "Use `.to(device, non_blocking=True)`{where}: the memory is pinned, but the host waits for each "
        "copy, and the device then waits {waits_ms:per_step} for the host.",
        claim,
        where=at(claim),
    )


def _recompute(claim: Claim) -> str:
    room = " Peak memory is {peak_gib:.1f} of {total_gib:.0f} GiB." if claim.figures["total_gib"] else ""
    return fill(
        "Take `torch.utils.checkpoint` off some blocks{where}, or make it selective: repeating the forward "
        "pass takes {repeats_ms:per_step}." + room,
        claim,
        where=at(claim, " (", ")"),
    )


def _averages(claim: Claim) -> str:
    copies = number(claim, "copies")
    takes = (
        "it takes {kernels:,.0f} kernels{copied} per step, and the device waits {waits_ms:per_step} for them"
    )
    if claim.figures.get("on_cores"):
        takes = "{kernels:,.0f} ops take {waits_ms:per_step}"
    return fill(
        "Average the weights in lists (`AveragedModel(…, multi_avg_fn=get_ema_multi_avg_fn(decay))`, "
        f"`torch._foreach_lerp_`){{where}}: tensor after tensor {takes}.",
        claim,
        where=at(claim),
        copied=f" and {copies:,.0f} copies" if copies else "",
    )


def _of_optimizers(template: str) -> Words:
    def words(claim: Claim) -> str:
        return fill(template, claim, optimizers=listed(map(spoken, claim.parts)))

    return words


def _separate(template: str) -> Words:
    def words(claim: Claim) -> str:
        waited = number(claim, "waits_ms")
        takes = f"its separate kernels take {per_step(number(claim, 'kernels_ms'))}"
        takes += f", and the device waits {per_step(waited)} for their launches" if waited else ""
        return fill(template + takes + ".", claim, optimizers=listed(map(spoken, claim.parts)))

    return words


def _sort(claim: Claim) -> str:
    return fill(
        "Sort the indices of {which} once, and sum sorted segments (torch.segment_reduce, a CSR product) "
        "instead of scattering with atomics: they take {spent_ms:per_step}. Wide rows gain little.",
        claim,
        which=claim.names["ops"] or "gathers and scatters",
    )


_LAUNCHES = (
    ": it launches {kernels:,.0f} kernels per step, one parameter after the other, which leaves the device "
    "waiting {waits_ms:per_step} and takes {started_ms:per_step} beyond the bytes moved."
)
WORDS: dict[str, Words] = {
    "allocator/cached": "the allocator serves every request of the step from its cache",
    "averages-in-lists/none": "no average of the weights is kept tensor by tensor",
    "averages-in-lists/hidden": "the device hardly waits for the average of the weights",
    "averages-in-lists/foreach": _averages,
    "channels-last/no-convolutions": "there are no convolutions in this step",
    "channels-last/already": "the convolutions already read channels-last tensors",
    "channels-last/little": "convolutions take only {spent_ms:per_step}",
    "channels-last/no-images": "no convolution here reads images of 4 dims",
    "channels-last/nothing-left": "there is no layout copy or slow convolution left to remove",
    "channels-last/turn": _turn,
    "channels-last/turned-back": (
        "norms and other ops here read images channels-first alone: turning them back and forth takes about "
        "{turned_ms:per_step}, and the layout saves {saved_ms:ms}"
    ),
    "channels-last/may-turn-back": (
        "unknown: norms and other ops here read images channels-first alone, and turning them back and forth "
        "may take all of the {saved_ms:per_step} that the layout saves"
    ),
    "copies/on-cores": "the job runs on the CPU: nothing is copied to a device",
    "copies/none": "nothing is copied to the device in the step",
    "copies/untold": "the copies' names do not say whether their memory is pinned",
    "copies/hidden": "the device hardly waits for copies",
    "expandable-segments/no-cache": (
        "the environment switches off torch's cache of memory, so there are no segments"
    ),
    "expandable-segments/already": "the segments can grow already",
    "expandable-segments/fetches-none": "the step fetches no device memory",
    "expandable-segments/no-shapes": (
        "the trace has no shapes (record_shapes=True), so it is not known if sizes change"
    ),
    "expandable-segments/same-sizes": "sizes are the same in every step: what was freed would fit again",
    "expandable-segments/switch-on": _segments,
    "fewer-copies/none": "no tensor is copied just to change its layout",
    "fewer-copies/by-library": "only convolutions turn their images round: no line of the job does",
    "fewer-copies/in-place": _copies(
        "Write new values in place into a tensor made once (a ring where a history moves on), and drop "
        "`cat`, `roll` and `.clone()`"
    ),
    "fewer-copies/one-layout": _copies(
        "Keep one layout from end to end and drop `.contiguous()`, `.clone()` and `cat`"
    ),
    "foreach-optimizer/has-fused": _of_optimizers("{optimizers} has fused=True, which saves traffic besides"),
    "foreach-optimizer/unnamed": "the trace does not name the optimizer",
    "foreach-optimizer/already": "the optimizer already updates parameters in lists",
    "foreach-optimizer/hidden": "the optimizer's kernels are long enough to hide that they are many",
    "foreach-optimizer/switch-on": _of_optimizers(
        "Use `torch.optim.{optimizers}(…, foreach=True)`" + _LAUNCHES
    ),
    "foreach-optimizer/write": _of_optimizers(
        "Write {optimizers}'s update with `torch._foreach_` ops on lists of parameters" + _LAUNCHES
    ),
    "fused-optimizer/already": "the optimizer is already fused ({fused_ms:per_step})",
    "fused-optimizer/untold": "the kernels of the optimizer's step are not told apart in this trace",
    "fused-optimizer/own-update": _separate(
        "Compile the function that updates a parameter (`update = torch.compile(update)`), write it with "
        "`torch._foreach_*` ops on lists, or use a library's fused kernel: "
    ),
    "fused-optimizer/switch-on": _separate("Use `torch.optim.{optimizer}(…, fused=True)`: "),
    "fused-optimizer/has-none": _separate(
        "torch has no fused=True for {optimizers}: use a library's kernel or compile its step; "
    ),
    "keep-cache/sizes-change": "nothing gives memory back: sizes change, and no free piece fits",
    "keep-cache/switched-off": _cache(
        "Keep torch's cache of memory, which the environment switches off: `{command}`"
    ),
    "keep-cache/given-back": _cache("Take `torch.cuda.empty_cache()` out of the loop"),
    "keep-cache/warm-up": _cache(
        "Warm up with the largest batch first, so that later steps find their memory"
    ),
    "less-recompute/none": "the backward pass repeats no forward work",
    "less-recompute/selective": _recompute,
    "non-blocking-copy/pageable": "the batches come from pageable memory, from which every copy blocks",
    "non-blocking-copy/no-wait": "the host does not wait for the copies from pinned memory",
    "non-blocking-copy/far-ahead": "the host is far enough ahead when it waits for a copy",
    "non-blocking-copy/do-not-wait": _do_not_wait,
    "pin-memory/already": "the copies already come from pinned memory",
    "pin-memory/pin": _pin,
    "prefetch-batches/own-stream": _own_stream,
    "sorted-index/none": "the step neither gathers nor scatters",
    "sorted-index/sort": _sort,
}
