"""Decode, augment and normalise whole batches on the GPU instead of sample by sample on the host.

What it does:
Cropping, flipping, colour changes, noise and normalisation are arithmetic on pixels or samples of sound: work
that the device does in a millisecond for a whole batch and a CPU core in a second. Send raw bytes (uint8 is a
quarter of fp32 to copy), and transform them there: torchvision.transforms.v2 on device tensors, Kornia for
augmentation that differs from sample to sample, NVIDIA DALI for decoding too (nvJPEG, video), torchaudio on
device tensors for sound, torchcodec for video.

    images = images.to(device, non_blocking=True).float().div_(255)
    images = augment(images)          # Kornia, or torchvision v2

When it does not help:
The workers wait for the disk or the network, not for a core: then larger shards or a faster store. The device
is busy as it is: what moves there is added to its step.

Risk:
Augmentation on the device draws other random numbers, and its resize and decode differ in the last bits from
PIL's: train and evaluate with the same. It takes device memory and time.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.host_cores import computing_share, cores_of, cores_while_loading, only_waits
from findwall.facts.memory_copies import BULK_BYTES, uploaded
from findwall.facts.user_lines import sampled
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    ideal,
    no_use,
    on_cores,
    step_ms,
    unless,
)
from findwall.fixes.loader.loader_refusals import LOADER_UNSEEN
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, WAITED_FOR_SHARE


def use(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if waited > WAITED_FOR_SHARE * step_ms(facts) and waited >= facts.spent_ms("host-work"):
        return _in_the_loader(facts, waited)
    return _in_the_loop(facts)


def _in_the_loader(facts: Facts, waited: float) -> Outcome:
    computing = computing_share(facts)
    evidence = Claim("loader/computes", {"ops_share": computing})
    busy, workers = cores_while_loading(facts), facts.rank.loader_workers or 0
    if computing < FAIR_PART:
        if workers == 0:
            return cannot_tell("device-side-preprocessing/unknown-work")
        if busy is None:
            return cannot_tell("device-side-preprocessing/uncounted")
        if only_waits(facts):
            return no_use("device-side-preprocessing/storage", workers=workers, busy_cores=busy)
        counted = {"workers": workers, "busy_cores": busy, "cores": cores_of(facts)}
        evidence = Claim("loader/workers-busy", counted)
    return Use(
        Claim("device-side-preprocessing/in-loader", {"waits_ms": waited}, parts=[evidence]),
        ideal(facts, "loader-starved", "copy-exposed"),  # what is sent then is another batch, and smaller
        ("loader-starved",),
    )


def _in_the_loop(facts: Facts) -> Outcome:
    """Work of the training thread itself that ends with a batch sent to the device."""
    spent = facts.spent_ms("host-work")
    if spent <= FAIR_PART * step_ms(facts):
        return no_use("device-side-preprocessing/hidden")
    positions, amounts = facts.idle_rows("host-work")
    batches = uploaded(facts)
    batches = batches[facts.timeline.events.nbytes[batches] > BULK_BYTES]
    before = amounts[np.isin(facts.queue.row[positions], batches)]
    if before.sum() < MAJORITY_SHARE * max(amounts.sum(), 1.0):
        return no_use("device-side-preprocessing/no-batch")
    line = sampled(facts, between_ops=True)
    places = [line.place] if line is not None else []
    return Use(
        Claim("device-side-preprocessing/in-loop", {"waits_ms": spent}, places=places),
        ideal(facts, "host-work", "copy-exposed"),
        ("host-work",),
    )


FIX = Fix(
    ("loader-starved", "host-work"),
    "needs-review",
    use,
    (
        unless("device-side-preprocessing/on-cores", on_cores, obvious=True),
        LOADER_UNSEEN,
    ),
)
