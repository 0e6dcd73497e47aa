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
    kind = str(figures["kind"])
    of = capital(str(figures["of"]))
    told = f"{of} memory peaks at {format_gib(number(claim, 'peak_gib'))}{where}. "
    share = format_share(number(claim, "kind_share"))
    told += f"{format_gib(number(claim, 'kind_gib'))} of it ({share}) is {KIND_NAMES[kind]}"
    if claim.places and figures.get("line_gib"):
        told += f"; {claim.places[0]} alone holds {format_gib(number(claim, 'line_gib'))}"
        told += (
            f" of {KIND_NAMES[str(other)]}" if (other := figures.get("line_kind")) not in (None, kind) else ""
        )
    told += "."
    if figures.get("asked_gib") is not None:
        told = _failed(claim) + told
    return " ".join([told, *(spoken(part) for part in claim.parts)])


def _failed(claim: Claim) -> str:
    asked = format_gib(number(claim, "asked_gib"))
    why = {
        "fragmentation": " although as much was free, in pieces",
        "size": ": less than that was free",
        "growth": ": the job keeps something of every step",
    }
    return f"A request for {asked} failed{why.get(str(claim.figures.get('cause')), '')}. "


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


def _asked(claim: Claim) -> str:
    figures, place = claim.figures, claim.places[0] if claim.places else ""
    memory = "the host's memory" if figures.get("on_host") else f"GPU {figures.get('device')}"
    asked = figures.get("asked_gib")
    wanted = f"more of {memory}" if asked is None else f"{format_gib(number(claim, 'asked_gib'))} of {memory}"
    where = f" in {'the optimizer' if figures['phase'] == 'optimizer' else figures['phase']}"
    who = f"{place} asked for" if place else "the job asked for"
    return f"Out of memory: {who} {wanted}{where if figures.get('phase') else ''}, and there was no more."


def _held(claim: Claim) -> str:
    known = (("parameters", "parameters"), ("gradients", "gradients"), ("optimizer_state", "optimizer state"))
    figures = claim.figures
    parts = [
        f"{format_gib(number(claim, f'{key}_gib'))} of {word}"
        for key, word in known
        if f"{key}_gib" in figures
    ]
    rest = "everything else" if figures.get("on_host") else "activations, inputs and all else"
    parts.append(f"{format_gib(number(claim, 'unknown_gib'))} of {rest}")
    held = f"The job held {format_gib(number(claim, 'held_gib'))}"
    return f"{held}: {', '.join(parts[:-1])} and {parts[-1]}." if parts[1:] else f"{held}."


def _needs(claim: Claim) -> str:
    """Between what and what the step would have peaked, and what there is for it."""
    low, high, room = (format_gib(number(claim, f"{one}_gib")) for one in ("low", "high", "room"))
    needs = f"about {low}" if low == high else f"{low} to {high}"
    told = f"A whole step needs {needs}, and the job can have {room}."
    share = claim.figures.get("batch_share")
    if isinstance(share, float) and share:
        told += f" {format_share(share)} of this batch surely fits."
    return told


def _change(claim: Claim) -> str:
    """A sentence of its own behind a colon."""
    said, patch = spoken(claim.parts[0]), claim.names.get("patch", "")
    written = f" Write `{patch}`." if patch and patch not in said else ""
    return said[:1].lower() + said[1:] + written


def _growth(claim: Claim) -> str:
    figures, holder = claim.figures, claim.names.get("holder")
    grown = format_gib(number(claim, "grown_gib"))
    told = (
        f"Memory held at the ends of steps grew by about {grown} per step, from step "
        f"{figures['first_step']:,} to step {figures['last_step']:,}: the job keeps something of every step."
    )
    if not holder:
        return told
    where = f" in {claim.names['function']}" if "function" in claim.names else ""
    graphs = " with their graphs" if figures["graphs"] else ""
    return f"{told} `{holder}`{where} holds {figures['tensors']:,} tensors{graphs}."


_SHARD = (
    "Parameters, gradients and optimizer state are most of it, and no smaller batch makes them less. "
    "Shard them over several GPUs (FSDP), or take an optimizer with less state."
)

WORDS: dict[str, Words] = {
    "memory/failed": lambda claim: " ".join(spoken(part) for part in claim.parts),
    "memory-failed/asked": _asked,
    "memory-failed/held": _held,
    "memory-failed/size": "Only {device_free_gib:gib} of {total_gib:gib} was free[[, and {free_gib:gib} in "
    "torch's cache]].",
    "memory-failed/fragmentation": "As much was free, but in pieces: {free_gib:gib} in torch's cache and "
    "{device_free_gib:gib} on the device.",
    "memory-failed/growth": _growth,
    "memory-failed/state": "The optimizer was making its state, which takes {state_gib:gib} once complete.",
    "memory-failed/limit": "{device_free_gib:gib}[[{on_host:unless} of the device]] was free: the limit of "
    "this process stopped it, {limit_gib:gib}[[{on_host:if} of address space]]"
    "[[{on_host:unless} of {total_gib:gib}]].",
    "memory-failed/others": "Other processes hold {others_gib:gib} of the {total_gib:gib} of this device; "
    "without them it would fit.",
    "memory-failed/unknown": "Why there was no more is unknown[[: {device_free_gib:gib} was free when the "
    "job ended]].",
    "memory-helps/expandable-segments": "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the job "
    "starts, so that pieces can be joined.",
    "memory-helps/sizes-alike": "Pad or bucket what changes its size from step to step, so that blocks fit "
    "again.",
    "memory-helps/raise-host-limit": "Raise the limit that was set before the job starts (`ulimit -v`, "
    "`ulimit -d`, `resource.setrlimit`), or "
    "[[{has_batch:unless}keep less at a time]][[{has_batch:if}make the batch smaller]].",
    "memory-helps/raise-limit": "Raise the fraction given to torch.cuda.set_per_process_memory_fraction, or "
    "leave it out.",
    "memory-helps/end-others": "Run `nvidia-smi` to see them; end them, or choose another GPU.",
    "memory-helps/in-parts": "No memory of this size has room for it alone: check the shape"
    "[[ at {places[0]}]], or compute it in parts.",
    "memory-helps/host": "Load or keep less at a time, or run on a machine with more memory.",
    "memory-helps/shard": _SHARD,
    "memory-helps/less-state": "No smaller batch makes it less. Take an optimizer with less state, such as "
    "SGD with momentum or an 8-bit AdamW, or shard it over several GPUs (FSDP).",
    "memory-helps/optimizer": "Pass foreach=False to the optimizer, which then updates one parameter at a "
    "time, or take one with less state.",
    "memory-helps/keep-numbers": "Append `x.item()` or `x.detach()`, not the tensor itself, which keeps all "
    "that it was computed from.",
    "memory-helps/keep-on-host": "[[{on_host:unless}Append `x.item()` or `x.cpu()`, or empty it now and "
    "then.]][[{on_host:if}Drop what no later step needs, or empty it now and then.]]",
    "memory-helps/find-kept": "Look for lists that tensors are appended to, and for sums of losses: keep "
    "`loss.item()` or `loss.detach()` instead.",
    "memory-helps/smaller-batch": "Halve the batch, or checkpoint activations[[: {rest_gib:gib} is not the "
    "model]].",
    "memory-failed/lines": lambda claim: f"The lines that hold most: {', '.join(map(spoken, claim.parts))}.",
    "memory-failed/line": lambda claim: (
        f"{claim.places[0]} ({format_gib(number(claim, 'line_gib'))} of "
        f"{KIND_NAMES[str(claim.figures['kind'])]})"
    ),
    "memory-failed/needs": _needs,
    "memory-helps/record": "Which lines hold most is unknown: `findwall run --memory` records the first "
    "steps and a few later ones.",
    "memory-helps/first-fit": lambda claim: f"The cheapest change that fits: {_change(claim)}",
    "memory-helps/may-fit": lambda claim: f"The cheapest change that may fit: {_change(claim)}",
    "memory-helps/none-fits": "No single change that findwall knows makes the step fit.",
    "memory/caught": "The job went on after {count:,} requests for memory that failed[[, the largest of "
    "{largest_gib:gib}]][[ at {places[0]}]].",
    "memory/fills-up": "Memory grows by {grown_gib:gib} per step, over {steps:,} steps so far, and none is "
    "given back.[[ At this pace it is full at step {full_step:,}, in {full_h:.1f} hours.]] Look for tensors "
    "that the job keeps[[ at {places[0]}]][[{recorded:unless}; `findwall run --memory` names the line]].",
    "memory/peak": _peak,
    "memory/empty": "This snapshot holds no memory: nothing in it is allocated.",
    "memory/peaked-elsewhere": "Over the whole run allocated memory peaked at {peak_gib:gib}, outside the "
    "recorded steps; kinds, lines and what makes it smaller are those of the recorded steps.",
    "memory/host-since-recording": "On a CPU the profiler sees only what was allocated after it started: the "
    "peak leaves out what was there before, such as parameters. Start it before the model is built.",
    "memory/no-times": "a memory snapshot holds no times",
    "memory/no-recording": "The snapshot holds no events, only what was alive when it was made. Call "
    "`torch.cuda.memory._record_memory_history()` first to see what peaks.",
    "memory/no-stacks": "The events have no Python stacks, so the phase and the kind of most memory are "
    'unknown. `torch.cuda.memory._record_memory_history(stacks="all")` records them.',
    "memory/no-backward": "No whole backward pass was recorded: what forward made and nobody freed counts as "
    "activations, and what was there before is not split into parameters and state.",
    "memory/optimizer-peaks": "The peak is in the optimizer's step, so a smaller batch, bf16 autocast and "
    "activation checkpointing cannot lower it.",
    "memory/ends-elsewhere": "The events end {off_gib:gib} away from what the segments hold: something "
    "allocated or freed while the snapshot was made.",
    "memory/unpaired": "{count:,} of {events:,} events lack their other half, so figures of the past may be "
    "a little off.",
    "memory/unknown-events": "{count:,} events are of a kind that findwall does not know; they are left out.",
    "memory/grows": "Memory grows by {grown_gib:gib} per step[[ at {places[0]}]] and is never freed, in each "
    "of {steps} steps.",
    "memory-no-rung/torch-compile": "The peak under torch.compile is unknown: a recording of the job as it "
    "is does not say what its kernels never write and its backward computes again. `findwall try --fixes "
    "torch-compile` measures it.",
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
    "memory-rung/bf16-autocast": _rung(
        "run forward under `torch.autocast(device, torch.bfloat16)`[[{if_wide:if}, if it runs in fp32 today]]"
    ),
    "memory-rung/pure-bf16": _rung(
        "train the whole model in bf16[[{if_wide:if}, if it is in fp32 today]]: `model.to(torch.bfloat16)`"
    ),
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
