"""Verdicts on what the device does: arithmetic and memory."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, pieces, spoken

SPOKEN_FORMATS = {"tf32": "TF32", "fp8": "fp8 matmuls"}
WIDTHS = {8: "fp64", 4: "fp32", 2: "16-bit", 1: "8-bit"}  # bytes of a value
# Kernel class -> how it is called in a sentence.
CLASSES = {"attention": "attention kernels", "conv": "convolutions", "matmul": "matmuls"}
KINDS = {"pointwise": "pointwise", "norm": "norm", "softmax": "softmax", "reduce": "reduction"}
# Of torch's own optimizers.
HAVE_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")


def work(claim: Claim) -> str:
    """What the longest carriers are: "matmuls"; just kernels where one of them is of no such class."""
    return listed([CLASSES[name] for name in CLASSES if claim.figures.get(name)]) or pieces(claim)


def _at_the_roof(claim: Claim) -> str:
    other, *beside = (spoken(part) for part in claim.parts)
    lower = _lower(claim)
    return fill(
        f"{{opening}} goes to {work(claim)} that already run at {{roof_share:share}} or more of this "
        f"{{gpu}}'s "
        f"ceiling, and [[{{other}}]].[[ {{beside}}]] Only [[lower precision ({{lower}}), ]]a smaller "
        f"model or "
        f"faster hardware shortens {'the rest' if beside else 'it'}.",
        claim,
        other=other,
        beside=" ".join(beside),
        lower=lower,
    )


def _lower(claim: Claim) -> str:
    formats = [str(claim.figures[key]) for key in ("lower1", "lower2") if key in claim.figures]
    named = " or ".join(SPOKEN_FORMATS.get(name, name) for name in formats)
    if formats and claim.figures.get("now") == "fp64":
        return f"{named} instead of fp64, if its digits are not needed"
    return named


def _memory_roof(claim: Claim) -> str:
    other, fewer, *beside = (spoken(part) for part in claim.parts)
    width = WIDTHS.get(int(number(claim, "each_bytes")), "")
    values = f"{width} " if width else ""
    what = f"{pieces(claim)} that move only the {values + 'values' if values else 'bytes'} they must"
    if claim.figures.get("thin"):
        what = f"matmuls that mostly read their {values}weights"
    return fill(
        f"{{opening}} goes to {what}, and [[{{other}}]].[[ {{beside}}]] Only fewer bytes ([[{{fewer}}]]) "
        f"or a "
        f"{{gpu}} with more bandwidth shortens {'the rest' if beside else 'it'}.",
        claim,
        other=other,
        fewer=fewer,
        beside=" ".join(beside),
    )


def _misaligned(claim: Claim) -> str:
    sizes = _sizes(claim)
    verb = "is not a multiple" if len(sizes) == 1 else "are not multiples"
    why = f"{listed([str(size) for size in sizes])} {verb}" if sizes else "a dimension is not a multiple"
    return fill(
        f"{{opening}} goes to 16-bit matmuls that fall back to slow kernels because {why} of 8", claim
    )


def _pad(claim: Claim) -> str:
    found = [f"{size} to {claim.figures[f'padded{at}']}" for at, size in enumerate(_sizes(claim), 1)]
    return f"pad {listed(found)}" if found else "pad it"


def _sizes(claim: Claim) -> list[int]:
    return [int(number(claim, key)) for key in ("size1", "size2", "size3") if key in claim.figures]


def _vector_units(claim: Claim) -> str:
    what = "matmuls and convolutions" if claim.figures.get("matmul") else "convolutions"
    if not claim.figures.get("conv"):
        what = "matmuls"
    faster = "and the tensor cores are not used"
    if "fast" in claim.figures:
        faster = "although the tensor cores do {ratio:.1f} times as much in {fast}"
    return fill(f"{{opening}} goes to {{now}} {what} on the vector units, {faster}", claim)


def _on_cores(claim: Claim) -> str:
    what = work(claim).replace("kernels", "ops")
    return fill(
        f"{{opening}} goes to {what} of {{now}} numbers, and this CPU multiplies {{fast}} ones "
        "{ratio:.1f} times as fast",
        claim,
    )


def _slow_kernels(claim: Claim) -> str:
    return fill(
        f"{{opening}} goes to {work(claim)} that stay under {{roof_share:share}} of this {{gpu}}'s ceiling"
        "[[; the longest, {kernel:kernel}, reaches {reached_share:share}]]",
        claim,
    )


def _idle_cores(claim: Claim) -> str:
    return fill(f"{{opening}} goes to {work(claim)} that keep {{used:.1f}} of {{cores}} cores busy", claim)


def _pointwise(claim: Claim) -> str:
    kinds = listed([word for name, word in KINDS.items() if claim.figures.get(name)]) or "pointwise"
    return fill(
        f"{{opening}} goes to {{kernels:,.0f}} {kinds} {{pieces}}[[, mostly {{ops}}]], each of which "
        f"moves whole "
        "tensors through memory",
        claim,
    )


def _updates(claim: Claim) -> str:
    who = "the job's own update of its parameters" if claim.figures.get("own") else "the optimizer's update"
    if "optimizer" in claim.names:
        who = "{optimizer}'s update"
    return fill(
        f"{{opening}} goes to {who} in {{kernels:,.0f}} {{pieces}}, each of which moves the parameters "
        f"through "
        "memory again",
        claim,
    )


def _attention(claim: Claim) -> str:
    how = "attention written out op by op"
    if claim.figures.get("on_math_path"):
        how = "scaled_dot_product_attention on its math path"
    return fill(
        f"{{opening}} goes to {how}, where every op moves the matrix of scores[[ {{shapes}}]] through memory",
        claim,
    )


def _ways_to_gather(claim: Claim) -> str:
    ways = [f"{spoken(part)}, " for part in claim.parts]
    return f"{''.join(ways)}look up unique ids once, or use segment reductions"


FROM_FP64 = "[[{from_fp64:if}make the data fp32 (.float()) if fp64's digits are not needed, then ]]"
ROOM = "[[ ({used_gib:.0f} of {total_gib:.0f} GiB are in use)]]"


def _less_recompute(claim: Claim) -> str:
    room = ROOM if "used_gib" in claim.figures else " (the trace does not say how much memory is free)"
    return fill(f"checkpoint fewer blocks, or none{room}", claim)


WORDS: dict[str, Words] = {
    "at-the-roof/fills": _at_the_roof,
    "memory-roof/fills": _memory_roof,
    "fewer-bytes/weights": "a larger batch, [[{narrow:if}fp8 or int8 weights||16-bit weights]]",
    "fewer-bytes/8-bit": "8-bit tensors",
    "fewer-bytes/16-bit": "16-bit tensors",
    "fewer-bytes/any": "16-bit or smaller tensors",
    "fewer-bytes/by-hand": "16-bit tensors that you convert yourself: autocast leaves these ops in fp32",
    "fewer-bytes/autocast": "16-bit values under autocast would save up to {narrower_ms:ms}[[{turned:if}; "
    "use "
    "channels-last with them, or NCHW costs layout copies again]]",
    "misaligned-shapes/fall-back": _misaligned,
    "advise/pad-shapes": _pad,
    "fast-path-off/vector-units": _vector_units,
    "fast-path-off/on-cores": _on_cores,
    "advise/full-precision": "keep the model and what it is given in fp32 (.float(), without autocast)",
    "advise/fp16-autocast": FROM_FP64
    + "run the model under fp16 autocast with a GradScaler (this GPU has no TF32)",
    "advise/bf16-autocast": FROM_FP64
    + "run the model under bf16 autocast (TF32 is no faster than fp32 on this GPU)",
    "advise/tf32": FROM_FP64 + 'set torch.set_float32_matmul_precision("high")[[{conv:if} and '
    "torch.backends.cudnn.allow_tf32 = True]], or run under bf16 autocast",
    "slow-kernels/below": _slow_kernels,
    "slow-kernels/idle-cores": _idle_cores,
    "advise/more-threads": "give every op all the cores (torch.set_num_threads({threads}))",
    "advise/channels-last/autotune": 'try channels_last and torch.compile(mode="max-autotune")',
    "advise/custom-kernels/foreign": "tune that kernel for these shapes, or replace it with another "
    "library's op",
    "advise/custom-kernels/select": "select from fewer values, or write a kernel for it",
    "slow-kernels/sorting-network": "put the {values} values in order by torch.minimum and "
    "torch.maximum "
    "over whole tensors (a sorting network)",
    "advise/autotune-kernels": "raise the batch so that each fills the device, or try "
    'torch.compile(mode="max-autotune")',
    "slow-kernels/other-attention": "try another attention backend (torch.nn.attention.sdpa_kernel)",
    "slow-kernels/less-often": "call them less often and on more data at once, or do the same with other ops",
    "slow-kernels/on-more-data": "call them less often and on more data at once[[, {parts[0]}]]",
    "advise/torch-compile/kernel": "or let torch.compile write a kernel",
    "unneeded-work/gradients": "{opening} goes to work that nobody needs, {most_ms:ms} of it to "
    "gradients that no optimizer uses[[ ({places[0]})]]",
    "unneeded-work/unread": "{opening} goes to work that nobody needs, {most_ms:ms} of it to "
    "results that nobody reads[[ ({places[0]})]]",
    "unneeded-work/twice": "{opening} goes to work that nobody needs, {most_ms:ms} of it to "
    "what was computed before from the same values[[ ({places[0]})]]",
    "unneeded-work/passes": "{opening} goes to work that nobody needs, {most_ms:ms} of it to "
    "backward passes whose gradients are only added up[[ ({places[0]})]]",
    "unneeded-work/always": "{opening} goes to work that nobody needs, {most_ms:ms} of it to "
    "what every step computes alike[[ ({places[0]})]]",
    "unneeded-work/evaluation": "{opening} goes to work that nobody needs, {most_ms:ms} of it to an "
    "evaluation in every step[[ ({places[0]})]]",
    "unneeded-work/dropped": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "is for rows that are thrown away behind it[[ ({places[0]})]]",
    "unneeded-work/repeated": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "is for rows that are copies of others[[ ({places[0]})]]",
    "unneeded-work/grown": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "is for tokens that an earlier pass of the model has worked on[[ ({places[0]})]]",
    "unneeded-work/filled": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "is for places that only fill the batch up[[ ({places[0]})]]",
    "unneeded-work/masked": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "is for positions that a mask leaves out[[ ({places[0]})]]",
    "unneeded-work/zeros": "{opening} goes to work that is not all needed: {most_ms:ms} of it "
    "multiplies with zeros[[ ({places[0]})]]",
    "unneeded-work/unknown": "It is unknown whether the step does work that nobody needs: nobody saw "
    "what its ops read (`findwall run` does).",
    "advise/no-unused-gradients": "take what is not trained out of the graph, with `.detach()`, "
    "`requires_grad_(False)` or `torch.no_grad()`",
    "advise/no-unread-results": "leave it out, or compute it only in the steps that use it",
    "advise/reuse-results": "keep the first result",
    "advise/one-backward": "add the losses up and take one backward pass",
    "advise/evaluate-less-often": "evaluate every n steps",
    "advise/compute-once": "compute it once, before the loop",
    "advise/block-sparse-attention": "attend only where the mask lets anything through, with a mask of "
    "blocks (flex_attention) or with each packed sequence as a row of the batch",
    "advise/sparse-product": "keep the matrix that is mostly zeros in CSR form",
    "advise/kv-cache": "keep keys and values of earlier tokens",
    "advise/less-padding": "fill a batch up to its longest sample only",
    "advise/fewer-rows": "pick rows before the work, and repeat them behind it",
    "recompute/forward-again": "{opening} goes to the forward pass done again inside backward, because "
    "activations are checkpointed",
    "advise/less-recompute": _less_recompute,
    "throttled/slower": "{opening} is lost because the GPU ran at {mean_mhz:,.0f} MHz instead of "
    "{most_mhz:,.0f} "
    "([[{reason}||no reason the driver names]])",
    "throttled/unknown": "It is unknown whether the clocks were held down: a trace has no clocks "
    "(`findwall run` "
    "samples them).",
    "clocks/cool": "cool it or check its power[[ ({parts[0]})]]",
    "unfused-pointwise/moves": _pointwise,
    "unfused-pointwise/compile": "use torch.compile, which fuses each chain into one kernel[[{turns:if} "
    "and makes "
    "images channels-last]]",
    "advise/fewer-graph-breaks/chains": "look for graph breaks that cut these chains, as torch.compile is "
    "in use "
    "already",
    "unfused-attention/op-by-op": _attention,
    "advise/sdpa": "call torch.nn.functional.scaled_dot_product_attention instead",
    "advise/sdpa/math-path": "find out what keeps it from a fused kernel (dtype, mask, dropout on a CPU)",
    "unfused-optimizer/updates": _updates,
    "advise/fused-optimizer": "pass fused=True to [[{optimizer}||it]]",
    "advise/torch-compile/update": "compile its step (torch.compile), or use an optimizer that has "
    "fused=True "
    f"({', '.join(HAVE_FUSED)})",
    "advise/torch-compile/own-update": "compile the function that updates a parameter (torch.compile), "
    "write it "
    "with torch._foreach_* ops on lists, or use a library's fused kernel",
    "dtype-casts/converts": "{opening} only converts tensors between number formats[[; the longest cast is "
    "{parts[0]}]]",
    "advise/fewer-casts": "keep tensors in one format[[, {parts[0]}]]",
    "advise/torch-compile/casts": "or let torch.compile fuse the casts",
    "layout-copies/copies": "{opening} only copies tensors to another [[{moves_on:unless}layout or ]]place"
    "[[, mostly in {ops},]] and computes nothing",
    "advise/fewer-copies/in-place": "write new values in place into a tensor made once (a ring where a "
    "history "
    "moves on)",
    "advise/channels-last": "put model and input into channels_last",
    "advise/fewer-copies": "drop .contiguous(), cat and permute where you can[[, {parts[0]}]]",
    "advise/torch-compile/copies": "or let torch.compile remove them",
    "gather-scatter/misses": "{opening} goes to gathering and scattering rows[[ ({ops})]] in an order "
    "that misses "
    "the cache",
    "gather-scatter/ways": _ways_to_gather,
    "advise/sorted-index": "sort the indices",
    "advise/torch-compile/it": "compile it",
}
