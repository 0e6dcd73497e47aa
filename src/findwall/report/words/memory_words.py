"""The words of memory: what peaks, what it consists of, and what makes it smaller."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, capital, fill, number, spoken
from findwall.units import format_gib, format_share

KIND_NAMES = {
    "unknown": "memory of an unknown kind",
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer-state": "optimizer state",
    "activations": "activations that backward waits for",
    "inputs": "inputs",
    "temporaries": "temporaries",
    "workspace": "workspace of matrix libraries",
    "kept": "tensors that outlive backward",
    "before-recording": "memory from before the recording",
}


def _peak(claim: Claim) -> str:
    figures = claim.figures
    phase = figures.get("phase")
    where = f" in {'the optimizer' if phase == 'optimizer' else phase}" if phase else ""
    kind = KIND_NAMES[str(figures["kind"])]
    of = capital(str(figures["of"]))
    told = f"{of} memory peaks at {format_gib(number(claim, 'peak_gib'))}{where}. "
    share = format_share(number(claim, "kind_share"))
    told += f"{format_gib(number(claim, 'kind_gib'))} of it ({share}) is {kind}"
    if claim.places and figures.get("line_gib"):
        told += f"; {claim.places[0]} alone holds {format_gib(number(claim, 'line_gib'))}"
    told += "."
    if figures.get("asked_gib") is not None:
        told = _failed(claim) + told
    return " ".join([told, *(spoken(part) for part in claim.parts)])


def _failed(claim: Claim) -> str:
    asked = format_gib(number(claim, "asked_gib"))
    if claim.figures.get("cause") == "fragmentation":
        return f"A request for {asked} failed although as much was free, in pieces. "
    return f"A request for {asked} failed: less than that was free. "


PRICES = {
    "time": " and costs time",
    "numerics": " and changes results a little",
    "training": " and changes training",
    "ranks": " on each rank",
    "host": " and costs copies to and from the host in every step",
}


def _rung(template: str) -> Words:
    def said(claim: Claim) -> str:
        left, saved = format_gib(number(claim, "peak_gib")), format_gib(number(claim, "saves_gib"))
        longer = claim.figures.get("longer_share")
        price = PRICES.get(str(claim.figures.get("price")), "")
        if isinstance(longer, float):
            price = f" and makes the step about {format_share(longer)} longer"
        return capital(fill(f"{template}; that leaves a peak of {left}, {saved} less{price}.", claim))

    return said


WORDS: dict[str, Words] = {
    "memory/peak": _peak,
    "memory/empty": "This snapshot holds no memory: no segment and no event.",
    "memory/peaked-elsewhere": "Over the whole run allocated memory peaked at {peak_gib:gib}, outside the "
    "traced steps: the kinds, lines and changes of memory are those of the traced steps.",
    "memory/host-since-recording": "On a CPU the profiler sees only what was allocated after it started: the "
    "peak leaves out what was there before, such as parameters. Start it before the model is built.",
    "memory/no-times": "a memory snapshot holds no times",
    "memory/no-recording": "The snapshot holds no events, only what was alive when it was made. Call "
    "`torch.cuda.memory._record_memory_history()` first to see what peaks.",
    "memory/no-stacks": "The events have no Python stacks, so the phase and the kind of most memory are "
    'unknown. `torch.cuda.memory._record_memory_history(stacks="all")` records them.',
    "memory/no-backward": "No backward pass was recorded: what forward made and nobody freed counts as "
    "activations, and what was there before is not split into parameters and state.",
    "memory/optimizer-peaks": "The peak is in the optimizer's step, so a smaller batch, bf16 autocast and "
    "activation checkpointing cannot lower it.",
    "memory/ends-elsewhere": "The events end {off_gib:.3f} GiB away from what the segments hold: something "
    "allocated or freed while the snapshot was made.",
    "memory/unpaired": "{count:,} of {events:,} events lack their other half, so figures of the past may be "
    "a little off.",
    "memory/unknown-events": "{count:,} events are of a kind that findwall does not know; they are left out.",
    "memory/grows": "Memory grows by {grown_gib:gib} per step[[ at {places[0]}]] and is never freed, in each "
    "of {steps} steps.",
    "memory-rung/sdpa": _rung(
        "use scaled_dot_product_attention[[ at {places[0]}]] instead of attention written out ({count} times)"
    ),
    "memory-rung/fused-optimizer": _rung("use a fused optimizer step[[ in place of {places[0]}]]"),
    "memory-rung/single-tensor-optimizer": _rung("pass foreach=False to the optimizer[[ at {places[0]}]]"),
    "memory-rung/foreach-optimizer": _rung("pass foreach=True to the optimizer[[ at {places[0]}]]"),
    "memory-rung/8-bit-optimizer": _rung(
        "keep the optimizer's state in 8 bits, as bitsandbytes' AdamW8bit does"
    ),
    "memory-rung/sgd-momentum": _rung("train with SGD and momentum instead of Adam"),
    "memory-rung/sgd": _rung("train with plain SGD instead of Adam"),
    "memory-rung/offload-state": _rung("keep the optimizer's state in the host's memory"),
    "memory-rung/set-to-none": _rung("call `optimizer.zero_grad(set_to_none=True)` before the forward pass"),
    "memory-rung/bf16-autocast": _rung("run forward under `torch.autocast(device, torch.bfloat16)`"),
    "memory-rung/pure-bf16": _rung("train the whole model in bf16: `model.to(torch.bfloat16)`"),
    "memory-rung/zero-1": _rung("spread the optimizer's state over {count} ranks (ZeRO-1)"),
    "memory-rung/zero-2": _rung("spread gradients and the optimizer's state over {count} ranks (ZeRO-2)"),
    "memory-rung/zero-3": _rung("spread the whole model over {count} ranks (ZeRO-3, `fully_shard`)"),
    "memory-rung/qlora": _rung("train small adapters beside weights in 4 bits (QLoRA)"),
    "memory-rung/checkpoint-blocks": _rung(
        "checkpoint the {count} repeated blocks[[ ({module})]]: `checkpoint(block, x, use_reentrant=False)`"
    ),
    "memory-rung/smaller-batch": _rung("halve the batch"),
    "memory-rung/accumulate-gradients": _rung("compute the batch in {count} parts and accumulate gradients"),
}
