"""The words of a sweep over batch sizes."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill


def _largest(claim: Claim) -> str:
    figures = claim.figures
    said = fill("Batches of {largest:,} ran, the largest that ", claim)
    if not figures["beyond"]:
        return f"{said}was tried."
    if figures["is_all"]:
        return f"{said}did; memory is no limit for any batch that one pass can fill."
    more = "did. Up to {predicted:,} are predicted to fit in the {limit_gib:gib} that the job can have."
    return fill(said + more, claim)


WORDS: dict[str, Words] = {
    "sweep/plateau": "{best_rate:,.4g} samples per second is the most, with batches of {best:,}; from "
    "{low:,} to {high:,} the job stays within 5 % of it[[, because of {wall} / {cause}]]. Batches of "
    "{smallest:,} are the smallest that do.",
    "sweep/falls": "{best_rate:,.4g} samples per second is the most, with batches of {best:,}[[, where "
    "{wall} / {cause} is the wall]]. All other sizes that were measured are more than 5 % slower.",
    "sweep/no-plateau": "{best_rate:,.4g} samples per second is the most that was measured, with batches of "
    "{best:,}[[, where {wall} / {cause} is the wall]]. No plateau was seen: no larger size was measured, and "
    "all smaller ones are more than 5 % slower.",
    "sweep/one-size": "{rate:,.4g} samples per second with batches of {size:,}; no other size was measured.",
    "sweep/knee": "The knee is at {knee:,}[[{is_lower:if} or below]]: from there on "
    "doubling the batch gives less than 1.4 times the samples per second.",
    "sweep/largest": _largest,
    "sweep/own-too-large": "The job's own batches of {own:,} run out of memory; of those that were tried "
    "{largest:,} is the largest that fits.",
    "sweep/nothing": "No size gave figures.",
    "sweep/counted-by-argument": "No data loader says how many samples its batches have, so each is "
    "taken to have as many as the argument says.",
    "sweep/interrupted": "It was interrupted before every size was tried.",
    "sweep/out-of-time": "There was no time for every size: a longer --budget tries the rest.",
    "sweep/others-busy": "Other processes kept {cores:.1f} cores busy meanwhile, so the rates vary. Run it "
    "alone, or on cores of its own (taskset).",
    "sweep/changes-training": "A larger batch also changes the training itself: fewer steps per epoch, "
    "another learning rate. findwall changes neither the learning rate nor its schedule.",
    "sweep/would-not-fit": "would not fit: {predicted_gib:gib} predicted, {limit_gib:gib} to be had; not "
    "started",
    "sweep/out-of-memory": "ran out of memory[[: {error}]]",
    "sweep/doubtful": "doubtful: torch would reserve {reserved_gib:gib} and can have {limit_gib:gib}, so "
    "it frees and asks again",
    "sweep/doubtful-on-cores": "doubtful: with what the C library keeps it may take {reserved_gib:gib}, and "
    "{limit_gib:gib} can be had",
    "sweep/too-few-samples": "more than the {samples:,} samples of one pass: no whole batch",
    "sweep/too-few-steps": "too few steps to time[[ ({steps})]]: the job ended first",
    "sweep/failed": "failed[[: {error}]]",
    "sweep/stopped": "interrupted before it was measured",
    "sweep/no-time": "no time left for it",
    "sweep/not-started": "not started: a smaller batch gave no figures",
}
