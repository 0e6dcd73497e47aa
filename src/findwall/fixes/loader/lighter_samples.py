"""Make each sample cheaper: store it decoded, and read it in large pieces.

What it does:
Whatever is the same every epoch (decoding, resizing, tokenising) is done once and stored; many small files
become a few large ones: tar shards (WebDataset, Mosaic's StreamingDataset), FFCV's own format, Parquet,
memory-mapped arrays. Then few workers keep up with any step. Samples that take microseconds each, rows of a
table, are fetched as whole batches: a dataset's `__getitems__` gets all indices at once, and a `BatchSampler`
as `sampler` with `batch_size=None` hands them to `__getitem__`.

A job without a loader makes its batches in the training loop itself. What is the same every epoch is done
before the loop there, too; the rest moves into a Dataset, whose DataLoader has workers.

When it does not help:
The device never waits for a batch. Random augmentation differs in every epoch and cannot be stored: move
it to the device (device-side-preprocessing).

Risk:
Stored copies take disk, and shards fix the order of samples within them: shuffle with a buffer.
"""

from __future__ import annotations

from findwall.facts.host_cores import only_waits
from findwall.facts.user_lines import sampled
from findwall.fixes import Claim, Facts, Fix, Likely, Outcome, Use, lines, step_ms
from findwall.fixes.loader.loader_refusals import LOADER_UNSEEN, loader_waits_little
from findwall.model.catalogue import FAIR_PART, SMALL_PART
from findwall.replay.change import Change, HostWork, without

SAMPLES = "samples"
SMALL_US = 50.0  # of a sample: less is mostly Python's own. Chosen by hand, not calibrated.
# Of making a batch, where its samples are stored: to pick them, to crop or turn them, to put them together.
# At the least, likely and at the most, chosen by hand: of two jobs on a CPU nearly nothing was left.
_LEFT = (0.0, SMALL_PART, FAIR_PART)


def use(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if facts.by_hand is not None:
        claim = Claim("lighter-samples/by-hand", {"waits_ms": waited}, places=[*facts.by_hand.lines[:1]])
        least, likely, most = (_with_part(share) for share in _LEFT)
        return Use(claim, without("loader-starved"), likely=likely, may=(least, most), uncurved=True)
    each_us = _sample_us(facts, waited)
    if each_us is not None and each_us < SMALL_US and not only_waits(facts):
        return Use(Claim("lighter-samples/whole-batches", {"sample_us": each_us, "waits_ms": waited}))
    line = sampled(facts)
    places = lines(line.place if line is not None else None)
    return Use(Claim("lighter-samples/cheaper", {"waits_ms": waited}, places=places))


def _with_part(left: float) -> Likely:
    return lambda made: Change((HostWork("loader-starved", left),))


def _sample_us(facts: Facts, waited: float) -> float | None:
    """What one process takes for a sample, about: where there are workers, all are at it all of the step."""
    samples, workers = facts.run.samples_per_step, facts.rank.loader_workers
    if not samples or facts.run.sample_unit != SAMPLES:
        return None
    return 1e3 * (step_ms(facts) * workers if workers else waited) / samples


FIX = Fix(
    ("loader-starved",),
    "needs-review",
    use,
    (
        LOADER_UNSEEN,
        loader_waits_little,
    ),
)
