"""Rows of evidence: what carries a cause on the device, and what the device waited for."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.model.short_kernel_names import short_kernel
from findwall.report.words import MORE_THAN_ONCE, Words, fill, number, spoken, times_text
from findwall.units import format_calls, format_ms, format_share

# What a share is of.
OF = {"ceiling": "its ceiling", "memory": "the memory ceiling", "aligned": "what aligned shapes reach"}


def carrier(claim: Claim) -> str:
    """ "aten::addmm [8192×768]·[768×50257] bf16 (ampere_bf16_s1688gemm…align1)"."""
    kernel = short_kernel(claim.names.get("kernel", ""))
    if "collective" in claim.names:
        return f"{claim.names['collective']} ({kernel})"
    if "op" not in claim.names:
        return kernel
    described = fill("{op}[[ {shapes}]]", claim)
    return described if claim.figures.get("on_cores") or not kernel else f"{described} ({kernel})"


def _kernel(claim: Claim) -> str:
    cast = [part for part in claim.parts if part.id == "cast"]
    figures = [format_calls(number(claim, "calls")), format_ms(number(claim, "ms"))]
    figures += [spoken(part) for part in claim.parts if part not in cast]
    if "of" in claim.figures:
        figures.append(f"{format_share(number(claim, 'reached_share'))} of {OF[str(claim.figures['of'])]}")
    what = spoken(cast[0]) if cast else carrier(claim)
    return f"{what}: {', '.join(figures)}{_at(claim)}"


def _at(claim: Claim) -> str:
    return f", at {claim.places[0]}" if claim.places else ""


def _vector_units(claim: Claim) -> str:
    text = "{now} on the vector units, {calls:calls}, {ms:ms}[[; {floor_ms:ms} at the tensor cores' ceiling]]"
    return f"{carrier(claim)}: {fill(text, claim)}{_at(claim)}"


def _slow_format(claim: Claim) -> str:
    text = "{now}, {calls:calls}, {ms:ms}[[; {floor_ms:ms} at this CPU's ceiling in {fast}]]"
    return f"{carrier(claim)}: {fill(text, claim)}{_at(claim)}"


def _copy(claim: Claim) -> str:
    first = claim.names.get("shapes", "")
    sign = ", " if ", " in first else "·"
    head, _, rest = first.partition(sign)
    shape = f"{head} {rest.rpartition(' ')[2]}" if rest else first
    by = f" by {claim.names['op']}{f' {shape}' if shape else ''}" if "op" in claim.names else ""
    figures = "{calls:calls}, {ms:ms}[[, {moved_bytes:bytes} per step]][[ at {rate_gbps:.1f} GB/s]]"
    return f"{claim.names.get('kernel', 'a copy')}{by}: {fill(figures, claim)}{_at(claim)}"


def place(claim: Claim) -> str:
    """The op, the range around it and its line: aten::item under clip_grad at train.py:88."""
    what = claim.names.get("op") or claim.names.get("call", "")
    return what + fill("[[ under {range}]][[ at {places[0]}]]", claim)


def _wait(claim: Claim) -> str:
    op, call, times = claim.names.get("op"), claim.names.get("call"), number(claim, "times")
    often = f", {times_text(times)} per step" if times >= MORE_THAN_ONCE else ""
    named = f" ({call})" if op and call != op else ""
    return f"{place(claim)}{named}{often}: the device waited {format_ms(number(claim, 'ms'))}"


def silence(claim: Claim) -> str:
    """What the host did while it issued nothing."""
    if "function" in claim.names:
        return fill("{function} ({places[0]})", claim)
    if "computes" in claim.names:
        return fill("on its own tensors, in {computes}", claim)
    before, after = (
        claim.names.get(side) or short_kernel(claim.names.get(f"{side}_kernel", ""))
        for side in ("before", "after")
    )
    where = "where the trace records no op at all"
    if before and after:
        where = f"between {before} and {after}"
    elif before or after:
        where = f"after {before}" if before else f"before {after}"
    return fill("[[in {call}, ]]", claim) + where


def _silent(claim: Claim) -> str:
    return f"{silence(claim)}: the device waited {format_ms(number(claim, 'ms'))}"


def new_shapes(claim: Claim) -> str:
    """ "5 new shapes (such as [16×8×500×64] bf16)", as far as the traced steps tell."""
    new = int(number(claim, "new"))
    if new == 0:
        return "new shapes (record_shapes=True would show which)"
    count = "1 new shape" if new == 1 else f"{new} new shapes"
    such = "" if new == 1 else "such as "
    return f"{count} in the traced steps" + fill(f"[[ ({such}{{shapes}})]]", claim)


def _set_up(claim: Claim) -> str:
    times = number(claim, "often")
    often = f" {times_text(times)} per step" if times >= MORE_THAN_ONCE else ""
    what = fill(f"{{op}}[[ at {{places[0]}}]] set itself up{often} for ", claim)
    return f"{what}{new_shapes(claim)}: the device waited {format_ms(number(claim, 'ms'))}"


def collective(claim: Claim) -> str:
    """ "2 gloo:all_reduce of 67.1 MB"."""
    calls = number(claim, "calls")
    return (f"{calls:,.0f} " if calls >= MORE_THAN_ONCE else "") + fill(
        "{op}[[ of {each_bytes:bytes}]]", claim
    )


WORDS: dict[str, Words] = {
    "evidence/kernel": _kernel,
    "evidence/vector-units": _vector_units,
    "evidence/slow-format": _slow_format,
    "evidence/copy": _copy,
    "evidence/wait": _wait,
    "evidence/silence": _silent,
    "evidence/set-up": _set_up,
    "evidence/sampled": "{places[0]} in {function}: the host was here in {seen_share:share} of the samples",
    "evidence/collective": "{op}[[ of {each_bytes:bytes}]]: {calls:calls}, {ms:ms} not hidden",
    "evidence/transfer-floor": "{calls:calls} of known size, {took_ms:per_step}: the bytes need at least "
    "{least_ms:ms} at the {rate_gbps:.0f} GB/s of [[{link}||the measured link]], and the other {rest_ms:ms} "
    "is waiting for others or a slower link",
    "evidence/collector": "the collector ran {collects_ms:ms} per step over {steps} steps",
    "evidence/after-break": "before [[{range}||eager ops after a break]]: the device waited {ms:ms}",
    "evidence/pace": "{kernels:,.0f} {pieces} per step, {each_us:.1f} us each (median); the device waits "
    "{waits_us:.1f} us for each; {turnaround_ms:ms} per step of that is its own turn-around",
    "evidence/launches": "{op}[[ (longest at {places[0]})]]: the device waited for it {times:times} per step",
    "evidence/by-hand": "batches are made in the training loop itself[[, most of all at {places[0]}]]: "
    "{waits_ms:per_step}",
    "evidence/loader": "without the profiler the loop waited {waits_ms:ms} per step for the loader",
    "evidence/stretches": "{stretches:,.0f} stretches per step, {waits_ms:ms} in all, with kernels queued "
    "and "
    "another device at work",
    "evidence/checkpointing": "the device waits {waits_ms:per_step} for launches that checkpointing makes",
    "evidence/ranks-wait": "the {ranks} ranks wait for each other {least_ms:ms} to {most_ms:ms} per step, "
    "{median_ms:ms} in the median",
    "evidence/rank-at": "rank {rank} was at {places[0]} ({function}) in {seen_share:share} of the samples",
    "evidence/held-down": "{reason} held the clocks down in {held_share:share} of the samples",
    "evidence/slow-step": "step {step} of {steps} took {took_ms:ms}, {ratio:.1f} times the median",
    "collective": collective,
    "cast": "{from_type} to {to_type} of {shapes}",
}
