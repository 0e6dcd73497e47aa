"""Make each sample cheaper: store it decoded, transform it on the device, read it in large pieces.

What it does:
Whatever is the same every epoch (decoding, resizing, tokenising) is done once and stored; random
augmentation runs on the device on whole batches; many small files become a few large ones (tar
shards, Parquet, memory-mapped arrays). Then few workers keep up with any step.

When it does not help:
The device never waits for the loader.

Risk:
Stored copies take disk. Augmentation on the device draws other random numbers and takes device
time.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, step_ms
from findwall.attribute.places import sampled
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.model.catalogue import WAITED_FOR_SHARE

MOVES = ("loader-starved",)


def advise(facts: Facts) -> Outcome:
    waited = facts.spent_ms("loader-starved")
    if waited <= WAITED_FOR_SHARE * step_ms(facts):
        return NoUse(f"the device waits only {a_step(waited)} for the loader")
    line = sampled(facts)
    at = f" The host was most often at {line.place}." if line is not None else ""
    return use(
        "Do once what every epoch repeats (decode, resize, tokenise) and store it; augment whole batches on "
        "the device; read large shards instead of many files: the device waits "
        f"{a_step(waited)} for the loader.{at}"
    )


FIX = Fix(MOVES, "needs-review", advise)
