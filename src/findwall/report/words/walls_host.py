"""Verdicts on what the device waits for: the host, the loader, other devices."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.model.topology import TOPOLOGY_TOOLS
from findwall.report.words import Words, fill, number, ops_named, spoken, times_text
from findwall.report.words.evidence import collective, new_shapes, place, silence
from findwall.report.words.rank_words import balance, balance_uneven, is_late, uneven
from findwall.report.words.verdicts import often

LEAST_SHOWN_US = 0.1  # one digit is printed: less would read as no work at all
TEENS = range(10, 21)  # 11th, 12th and 13th, unlike 21st, 22nd and 23rd


def _allocates(claim: Claim) -> str:
    asked, freed = (claim.figures.get(key) for key in ("asked_times", "freed_times"))
    does = []
    if asked is not None:
        does.append(f"asks the driver for memory {times_text(number(claim, 'asked_times'))}")
    if freed is not None:
        does.append(f"gives {'it' if does else 'memory'} back {times_text(number(claim, 'freed_times'))}")
    return fill(f"{{waiting}} while torch {' and '.join(does)} per step[[ (at {{places[0]}})]]", claim)


def _one_by_one(claim: Claim) -> str:
    return fill(
        "{waiting} while the host issues {kernels:,.0f} {pieces} one by one[[, most often at {places[0]}]]",
        claim,
    ) + _half(claim)


def _too_small(claim: Claim) -> str:
    return fill("{opening} goes to {kernels:,.0f} {pieces} too small to use the device", claim) + _half(claim)


def _half(claim: Claim) -> str:
    return f". Half of them hold at most {max(number(claim, 'each_us'), LEAST_SHOWN_US):.1f} us of work"


def _ways_to_launch(claim: Claim) -> str:
    alone = fill("give each {piece} more work (a larger batch)", claim)
    ways = [spoken(part) for part in claim.parts]
    return f"{', '.join([*ways, 'or '])}{alone}" if ways else alone


def _sync_call(claim: Claim) -> str:
    if "op" not in claim.names and "Synchronize" in claim.names.get("call", ""):
        return fill("a synchronize ({call})[[ at {places[0]}]]", claim)
    return place(claim)


def _silence(claim: Claim) -> str:
    where = f"in {silence(claim)}" if "function" in claim.names else silence(claim)
    stacks = ""
    if claim.figures.get("unseen"):
        record = "Record with_stack=True or use" if claim.figures.get("recorder") == "torch" else "Use"
        stacks = f". {record} `findwall run` to see the line"
    return f"{fill(OWN_WORK, claim)}, {where}{stacks}"


OWN_WORK = "{waiting} while the host does work of its own with no op under it"


def _compiles(claim: Claim) -> str:
    number_of = int(number(claim, "compiled"))
    ending = "th" if number_of % 100 in TEENS else {1: "st", 2: "nd", 3: "rd"}.get(number_of % 10, "th")
    again = f" (one function for the {number_of}{ending} time)" if number_of else ""
    return fill("{waiting} while code is compiled inside the step[[ at {places[0]}]]", claim) + again


def _tries(claim: Claim) -> str:
    return fill("{opening} goes to {op}[[ at {places[0]}]] trying out kernels for ", claim) + new_shapes(
        claim
    )


def _sets_up(claim: Claim) -> str:
    return fill("{waiting} while {op}[[ at {places[0]}]] sets itself up for ", claim) + new_shapes(claim)


def _slow_steps(claim: Claim) -> str:
    slow = int(number(claim, "slow"))
    which = f"{slow} of {{steps}} steps that" if slow else "steps that came after these were timed, and"
    return fill(
        f"{{opening}} comes from {which} take more than {{ratio:g}} times the median of {{median_ms:ms}}"
        "[[; the host was mostly at {places[0]} ({function})]]",
        claim,
    )


def _restarts(claim: Claim) -> str:
    return fill(f"its workers restart in {often(claim)}, which takes {{long_ms:ms}}", claim)


def _too_slow(claim: Claim) -> str:
    have = claim.figures.get("have")
    who = "its one worker" if have == 1 else f"its {have} workers" if have else "its workers"
    return fill(f"{who} cannot keep up[[ on {{cores}} cores]]", claim)


def workers(claim: Claim) -> str:
    """As code: how many."""
    count = claim.figures.get("workers")
    if claim.figures.get("as_cores"):
        return "num_workers=os.cpu_count()"
    return f"num_workers={count}" if count is not None else ""


def _first_workers(claim: Claim) -> str:
    each = ", one thread each" if claim.figures.get("threads") == 1 else ""
    return f"give the DataLoader workers ({workers(claim)}, persistent_workers=True{each})"


def _more_workers(claim: Claim) -> str:
    more = f"add workers ({workers(claim)})" if workers(claim) else "add workers"
    return f"{more}, or make the transforms cheaper"


def _runs_alone(claim: Claim) -> str:
    names = listed([collective(part) for part in claim.parts]) or ops_named(claim)
    return fill(
        "For {opening} collectives[[ ({names})]] run with no computation beside them[[{alone:if}; one "
        "rank alone "
        "cannot tell transfer from waiting for a late rank]]",
        claim,
        names=names,
    )


def _faster_link(claim: Claim) -> str:
    tool = TOPOLOGY_TOOLS.get(str(claim.figures.get("maker")), "")
    return f"check NCCL's transport (NCCL_DEBUG=INFO{f', {tool}' if tool else ''})"


WORDS: dict[str, Words] = {
    "allocator/calls": _allocates,
    "advise/keep-cache": "take torch.cuda.empty_cache() out of the loop",
    "advise/keep-cache/switched-off": "keep torch's cache of memory, which the environment switches off"
    "[[: {parts[0]}]]",
    "advise/expandable-segments": "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and keep shapes "
    "the same",
    "launch-bound/one-by-one": _one_by_one,
    "launch-bound/too-small": _too_small,
    "launch-bound/ways": _ways_to_launch,
    "advise/batch-small-ops": "do in one call what a Python loop does part by part, if no round needs the "
    "one "
    "before",
    "advise/loop-on-device": "do all rounds of the loop at once, with a mask of what is left",
    "advise/group-experts": "sort the tokens by expert once and multiply them in groups",
    "advise/cuda-graphs": "capture the step in a CUDA graph",
    "advise/torch-compile": "compile the model",
    "advise/reduce-overhead": 'compile with mode="reduce-overhead"',
    "host-sync/copies": "{opening} goes to copies back to the host with nothing beside them",
    "host-sync/stops": "{waiting} because the host stops {times:times} per step to wait for results, "
    "mostly in "
    "{parts[0]}",
    "host-sync/call": _sync_call,
    "advise/linalg-route": "take a cheaper routine, or one that does not wait (inv_ex, cholesky_ex)",
    "advise/remove-sync": "keep the value on the device and read it every n steps",
    "advise/remove-sync/copies": "read values every n steps, or copy with non_blocking=True into pinned "
    "memory",
    "host-work/silence": _silence,
    "host-work/seen": OWN_WORK + ", most often at {places[0]} ({function})",
    "host-work/computes": "{waiting} while the host computes on its own tensors, in {computes}",
    "host-work/on-device": "do it on the device, or ahead of the step in another process",
    "host-work/nowhere": OWN_WORK + ", in a place the trace does not name",
    "advise/shorter-host-calls": "give that call fewer numbers, keep what does not change, or do it in a "
    "worker beside the step",
    "host-work/elsewhere": "do it with ops on whole tensors, less often, or in another "
    "[[{process:if}process||thread]]",
    "graph-breaks/leaves": "{waiting} because the compiled model leaves its graph {times:times} per step",
    "advise/fewer-graph-breaks": "run it with TORCH_LOGS=graph_breaks and remove what breaks it",
    "recompilation/compiles": _compiles,
    "recompilation/tries": _tries,
    "recompilation/sets-up": _sets_up,
    "advise/static-shapes/dynamic": "compile with dynamic=True or keep shapes fixed "
    "(TORCH_LOGS=recompiles names "
    "the guard)",
    "advise/static-shapes/tried": "bucket the shapes to a few fixed ones, or switch "
    "torch.backends.cudnn.benchmark off",
    "advise/static-shapes/set-up": "pad or bucket the lengths to a few fixed shapes, so that each is set "
    "up only "
    "once",
    "gc-pause/unknown": "It is unknown whether collections stop the host: a trace does not show them "
    "(`findwall "
    "run` times them).",
    "gc-pause/stops": "{waiting} while Python's garbage collector stops the host[[{asked:unless} at "
    "{places[0]}]]",
    "advise/freeze-gc": "call gc.freeze() after start-up and gc.disable(), then collect every few hundred "
    "steps",
    "advise/freeze-gc/asked": "remove gc.collect()[[ at {places[0]}]] from the loop and collect every few "
    "hundred "
    "steps",
    "unstable-steps/unknown": "It is unknown whether steps are stable: none was timed without the profiler "
    "(`findwall run` times them).",
    "unstable-steps/slow": _slow_steps,
    "unstable-steps/look": "find out what happens in them (evaluation, saving, new shapes, other jobs) "
    "and move it "
    "out",
    "loader-starved/waits": "{waiting} for the next batch[[ at {places[0]}]] because {parts[0]}",
    "loader/restarts": _restarts,
    "loader/by-itself": "the training process makes it itself",
    "loader/too-slow": _too_slow,
    "loader/cannot-keep-up": "the loader cannot keep up",
    "advise/persistent-workers": "keep them alive (persistent_workers=True)",
    "advise/loader-workers": "give it workers (num_workers), or make the transforms cheaper",
    "advise/loader-workers/first": _first_workers,
    "advise/loader-workers/more": _more_workers,
    "advise/lighter-samples": "make the transforms cheaper",
    "advise/lighter-samples/by-hand": "do once, before the loop, what every epoch repeats for its samples",
    "copy-exposed/copies": "{opening} goes to copies to the device[[ ({moved_bytes:bytes} per step)]]"
    "[[ at {places[0]}]] because [[{memory:if}they come from pageable memory, so the host copies them "
    "itself and "
    "waits||nothing else runs beside them]]",
    "advise/pin-memory": "use pin_memory=True and .to(device, non_blocking=True)",
    "advise/prefetch-batches": "copy the next batch on its own stream while this one trains, and send "
    "fewer bytes",
    "exposed-collective/runs-alone": _runs_alone,
    "advise/nccl-backend": "use the NCCL backend with one GPU per rank (today they go through the host's "
    "memory), "
    "or send less",
    "advise/overlap-comms": "start them earlier (buckets during backward, prefetched gathers), or send less",
    "small-collectives/unknown": "It is unknown whether messages are too small: the trace records fewer "
    "than ten "
    "of a known size.",
    "small-collectives/latency": "{opening} goes to {messages:,.0f} collectives[[ of {each_bytes:bytes} "
    "(median)]], "
    "each of which pays its latency",
    "advise/bucket-collectives": "put the tensors into one buffer and reduce that",
    "straggler/unknown": "It is unknown whether a rank is late: that takes the traces of several ranks, "
    "of the "
    "same steps.",
    "straggler/is-late": is_late,
    "straggler/uneven": uneven,
    "advise/balance-ranks": balance,
    "advise/balance-ranks/uneven": balance_uneven,
    "slow-link/unknown": "It is unknown whether the link is slow: that takes the traces of several ranks "
    "with "
    "message sizes, and a measured link rate (`findwall ceilings`).",
    "slow-link/transfers": "{opening} goes to transfers at {rate_gbps:.1f} GB/s over a link that reaches "
    "{link_gbps:.0f} GB/s",
    "advise/faster-link": _faster_link,
    "pipeline-bubble/unknown": "It is unknown whether a stage waits for its neighbours: the trace names "
    "no send "
    "and no receive.",
    "pipeline-bubble/devices": "For {opening} this device has kernels queued but waits for another device "
    "of the "
    "process, because the parts of the model run one after the other",
    "pipeline-bubble/stages": "For {opening} this stage waits in {messages:,.0f} sends and receives "
    "because its "
    "neighbours have nothing ready for it",
    "advise/more-microbatches": "use more micro-batches, an interleaved schedule or more even stages",
    "advise/more-microbatches/devices": "split the batch into micro-batches so that the parts overlap, or "
    "give "
    "each device a whole copy",
}
