"""Remarks: what was missing, what was estimated, what was refused."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, spoken
from findwall.report.words.undecided import numbered, with_option
from findwall.units import format_share

SHOWN_SHARE = 0.005  # of the job's time: less is not listed


def _elapsed(claim: Claim) -> str:
    shares = {name: number(claim, name) for name in claim.figures if name != "total_s"}
    found = [f"{name} {format_share(share)}" for name, share in shares.items() if share > SHOWN_SHARE]
    return fill(f"Outside its steps the job spent, of {{total_s:.0f}} s in all: {', '.join(found)}.", claim)


def _profiled(claim: Claim) -> str:
    return fill(
        "{rows:,} of {kernels:,} kernels in these steps have their bytes from Nsight Compute's counters "
        "instead of "
        "their shapes[[; {unmatched:,} of {launches:,} profiled launches match no kernel for sure (by "
        "name, grid and "
        "order) and are not used]].",
        claim,
    )


def _doubt(claim: Claim) -> str:
    doubt = spoken(claim.parts[0])
    reason = f"{doubt[:1].lower()}{doubt[1:]}" if doubt.startswith("Other") else doubt
    return fill(
        "The ceilings may be too low, and the job farther from them than it says here[[: {reason}]]. "
        "Measure them "
        "again when the machine is quiet: `findwall ceilings --refresh`.",
        claim,
        reason=reason,
    )


_NOT_COMPARED = {
    "no-messages": "none of them has a communication",
    "none-shared": "no two of them share a communication",
    "unlike-clocks": "played together, they do not give the step that was recorded",
}


def _not_compared(claim: Claim) -> str:
    why = _NOT_COMPARED.get(str(claim.figures["why"]), "there is one rank alone")
    return f"The ranks are not compared with each other: {why}."


def _captures(claim: Claim) -> str:
    return fill(
        "The graph's recorded [[{one:if}capture gives||captures give]] ops and shapes to "
        "{named_share:share} of the "
        "time in replayed kernels, matched in order.",
        claim,
        one=claim.figures.get("captures") == 1,
    )


def _not_shown(claim: Claim) -> str:
    return fill(
        "{fixes}: not shown[[, because it contradicts a figure ({parts[0]})]].",
        claim,
        fixes=" and ".join(numbered(claim, "fix")),
    )


def _far_off(claim: Claim) -> str:
    return (
        f"{listed(list(claim.names.values()))} took more than twice or less than half as long when probed "
        f"as in the "
        "job: predictions take the probe's own time. If the device was busy, probe again (`findwall probe "
        "--refresh`)."
    )


_NOT_SCALED = {
    "no-step": "one of the two runs has no known step time",
    "no-fewer": "the baseline has {baseline_ranks:.0f} ranks and this run {ranks:.0f}: it must have fewer",
    "other-device": "the two ran on other devices",
}


def _not_scaled(claim: Claim) -> str:
    return fill(f"How the job scales is unknown: {_NOT_SCALED[str(claim.figures['why'])]}.", claim)


WORDS: dict[str, Words] = {
    "steps/of-a-kind": "{parts[0]}[[{late:if}, seen only after the other steps were timed]].",
    "elapsed/outside": _elapsed,
    "probes/far-off": _far_off,
    "profiled/used": _profiled,
    "ranks/as-slow": "{parts[0]}: ranks that wait for each other are all as slow as that one.",
    "ranks/not-compared": _not_compared,
    "nccl/sockets": "NCCL's log: {pairs:,.0f} of {of:,.0f} connections go over TCP sockets. If the machines "
    "have InfiniBand or RoCE, NCCL did not find it (its NET/IB lines say why).",
    "nccl/network-inside": "NCCL's log: {pairs:,.0f} of {of:,.0f} connections inside a node go through a "
    "network adapter, not from GPU to GPU.",
    "nccl/shared-memory": "NCCL's log: {pairs:,.0f} of {of:,.0f} connections go through the host's memory "
    "(SHM). Where the GPUs could reach each other, peer-to-peer is off (ACS, a container, "
    "NCCL_P2P_DISABLE).",
    "nccl/no-gpu-direct": "NCCL's log: {pairs:,.0f} of {of:,.0f} connections use InfiniBand without "
    "GPUDirect RDMA, so all they send passes the host's memory. Load nvidia-peermem, or "
    "look at NCCL_NET_GDR_LEVEL.",
    "nccl/switched-off": "NCCL's log: the environment sets {setting}.",
    "scaling/none": _not_scaled,
    "ranks/entered": "The ranks entered the recording up to {skew_ms:ms} apart, as their profilers were "
    "started: no rank is late for that, and nothing of it comes back.",
    "step/longer-than-traced": "The step is {left_ms:ms} longer than the traced steps explain, even on a "
    "slow host, "
    "so that time has no known cause. Trace other steps, or more of them.",
    "step/estimated": "The step is estimated ({short_ms:ms} to {long_ms:ms}): profiling stretched it to "
    "{profiled_ms:ms}. Pass --step-ms for a true budget.",
    "left-out/cut": "{left_ms:ms} at the beginning is left out of the step: the kernels there waited for "
    "device work "
    "that this file does not hold (it is a slice of a longer trace).",
    "left-out/not-recorded": "{left_ms:ms} of the file is left out of the step: nothing was recorded then, "
    "on the host or on the device.",
    "left-out/once": "{left_ms:ms} is left out of the step because it happens only once: {parts[0]}.",
    "window/cold": "[[{several:if}The first {steps} steps are||The first step is]] left out as warm-up: "
    "[[{several:if}at most ]]{longest_ms:ms}, longer than all that follow by more than those differ.",
    "window/typical": "The budget covers {kept} typical steps out of {steps}; step times cover all of them.",
    "window/evaluations": "{held} of {traced} traced steps held an evaluation: the budget is of a run of "
    "{steps} "
    "without one.",
    "recording/no-shapes": with_option(
        "The trace has no shapes ({option}), so FLOPs and bytes are known only from kernel names."
    ),
    "recording/unnamed-gpu": "The export does not name the GPU. Pass --gpu NAME to compare kernels with "
    "its ceilings.",
    "recording/no-ceilings": "No ceilings are known for this device ([[{device}||the device's name is "
    "missing]]): "
    "`findwall ceilings` measures them.",
    "recording/busiest": "The budget covers device {number}, the busiest of {devices} in this process.",
    "ceilings/doubt": _doubt,
    "captures/used": _captures,
    "links/ambiguous": "Correlation ids repeat in this trace (merged files?), so {events:,} device events "
    "were "
    "matched to their launches by process and order.",
    "model/above-spec": "{above_share:share} of the kernel time would run above 105 % of the spec: its "
    "data was in "
    "cache, or its work is overestimated.",
    "model/no-known-cause": "{unknown_share:share} of the step has no known cause.",
    "what-if/needs-a-device": "What {asked} would give is not known: predictions replay a trace that "
    "shows the device "
    "at work.",
    "check/left-out": "Some figures are left out because they cannot be right[[: {parts[0]}]].",
    "check/not-shown": _not_shown,
    "check/no-wall": "No wall is named, because the verdict contradicts a figure[[: {parts[0]}]].",
}
