"""The words of fixes that move communication between ranks."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill, number, spoken
from findwall.report.words.amounts import NAMED
from findwall.units import format_bytes, format_calls


def _split_evenly(claim: Claim) -> str:
    held = "; ".join(map(spoken, claim.parts[:NAMED]))
    return fill(
        "Split the work evenly (batches of equal cost, samples bucketed by length, stages of equal time) "
        "and check the late rank's machine{held}: the others wait {waits_ms:per_step} for it.",
        claim,
        held=f" ({held})" if held else "",
    )


def _buffers(claim: Claim) -> str:
    return fill(
        "Pass `broadcast_buffers=False` to DistributedDataParallel: before its forward passes it sends the "
        "model's buffers ({count} of broadcast), which takes {sent_ms:per_step}.",
        claim,
        count=format_calls(number(claim, "calls")),
    )


def _link(claim: Claim) -> str:
    tool = claim.figures["tool"]
    path = f"Check the path ({f'`{tool}`, ' if tool else ''}NCCL_DEBUG=INFO)"
    if claim.figures["by_gloo"]:
        path = "Check the network interface that gloo uses (GLOO_SOCKET_IFNAME)"
    if claim.figures["doubts"]:
        path = "Mend the path as the notes on NCCL's log say"
    heavy = "; ".join(map(spoken, claim.parts[:NAMED]))
    return fill(
        "{path}, keep heavy traffic inside a node{heavy}, and send fewer bytes (bf16_compress_hook, hybrid "
        "sharding): the device waits {waits_ms:per_step} for communication.",
        claim,
        path=path,
        heavy=f" ({heavy})" if heavy else "",
    )


def _nccl(claim: Claim) -> str:
    return fill(
        'Use `dist.init_process_group("nccl")` with one GPU per rank (torch.cuda.set_device(local_rank)): '
        "{library} copies {staged} per step to the host and back and sends it over "
        "sockets, and the device waits {waits_ms:per_step} for it.",
        claim,
        staged=format_bytes(number(claim, "staged_bytes")),
    )


_ALONE = ": {exposed_ms:per_step} of communication runs with nothing beside it."
WORDS: dict[str, Words] = {
    "communication/none": "there is no communication in this step",
    "communication/hidden": "computation already hides all communication",
    "data-parallel/none": "DistributedDataParallel wraps no model here",
    "rank/held-down": "{reason} held down the clocks of rank {rank} in {samples_share:share} of the samples",
    "accumulate-gradients/no-training": "this job does not train, so there are no gradients to reduce",
    "accumulate-gradients/no-reductions": (
        "nothing is reduced here: what the ranks exchange belongs to each batch"
    ),
    "accumulate-gradients/reduced-too-early": (
        "gradients are accumulated already, but reduced after each backward pass: no_sync first"
    ),
    "accumulate-gradients/no-sync": (
        "Accumulate gradients over several micro-batches, with `model.no_sync()` around all but the last: "
        "the device waits {waits_ms:per_step} for communication."
    ),
    "balance-ranks/split-evenly": _split_evenly,
    "balance-ranks/one-rank": (
        "one rank alone cannot tell a late rank from a slow link: read all ranks together"
    ),
    "balance-ranks/together": "the ranks arrive together",
    "broadcast-buffers/none": "no buffer is sent before a forward pass",
    "broadcast-buffers/hidden": "computation already hides the buffers' broadcasts",
    "broadcast-buffers/off": _buffers,
    "bucket-collectives/few": "there are only {collectives:,.0f} collectives per step",
    "bucket-collectives/hidden": "the device waits for no communication",
    "bucket-collectives/large": lambda claim: fill(
        "DDP's gradients ({amount}) already leave in {buckets:,.3g} buckets per step, {each} each (median)",
        claim,
        amount=format_bytes(number(claim, "gradient_bytes")),
        each=format_bytes(number(claim, "each_bytes")),
    ),
    "bucket-collectives/buckets": lambda claim: fill(
        "Pass `bucket_cap_mb={megabytes:.0f}` to DistributedDataParallel: its {amount} of gradients leave in "
        "{buckets:,.3g} buckets per step, {each} each (median), and then in {made:.0f} per backward pass; "
        "the device waits {waits_ms:per_step} for them.",
        claim,
        amount=format_bytes(number(claim, "gradient_bytes")),
        each=format_bytes(number(claim, "each_bytes")),
    ),
    "bucket-collectives/pack": (
        "Pack the {collectives:,.0f} collectives per step into fewer (DDP: a larger bucket_cap_mb; FSDP: "
        "wrap whole blocks; scalars: stack them first): the device waits {waits_ms:per_step} for them."
    ),
    "faster-link/across": "[[{role} ]]groups[[ of {ranks:.0f} ranks]] send {sent_bytes:bytes} per step and "
    "rank across nodes",
    "faster-link/check": _link,
    "more-microbatches/none": "no pipeline stage waits here",
    "more-microbatches/cut": (
        "Use more micro-batches per step, or an interleaved 1F1B schedule: the stage waits "
        "{waits_ms:per_step}."
    ),
    "nccl-backend/on-cores": "the job runs on the CPU, and NCCL serves GPUs only",
    "nccl-backend/already": "the collectives already run on the device",
    "nccl-backend/host-data": "no collective takes device data through the host",
    "nccl-backend/switch": _nccl,
    "no-sync-accumulation/none": (
        "no gradient is reduced before the last backward pass of an optimizer's step"
    ),
    "no-sync-accumulation/wrap": (
        "Put `with model.no_sync():` around every forward and backward pass but the last before the "
        "optimizer's step: gradients still being added up take {reductions:,.3g} reductions and "
        "{spent_ms:per_step}."
    ),
    "skip-unused-search/none": "the job searches for no unused parameters",
    "skip-unused-search/unknown": (
        "it is unknown whether all parameters get a gradient in each pass: the trace does not say how many "
        "there are (torch warns where all of them do)"
    ),
    "skip-unused-search/needed": (
        "only {used:,.0f} of the {parameters:,.0f} parameters get a gradient in some pass, so the search is "
        "needed"
    ),
    "skip-unused-search/off": (
        "Leave out `find_unused_parameters=True`: all {parameters:,.0f} parameters get a gradient in each "
        "pass, and the search takes {search_ms:per_step} of the host, with a reduction after each pass."
    ),
    "overlap-comms/fsdp": (
        "Let FSDP prefetch the next layer's parameters (forward_prefetch, BackwardPrefetch.BACKWARD_PRE)"
        + _ALONE
    ),
    "overlap-comms/ddp": (
        "Tune DDP's bucket_cap_mb so that gradients leave during the backward pass, with "
        "static_graph=True and without find_unused_parameters" + _ALONE
    ),
    "overlap-comms/async": (
        "Issue collectives with async_op=True, and wait for each only where its result is needed" + _ALONE
    ),
}
