"""Fill a batch up to its longest sample, not to the longest there could be.

What it does:
Every token costs what any other does, also one that only fills a sample up. Where all are filled up to a
fixed length, the places behind the longest sample of a batch are filling in all of them. Fill up in the
collate function, to the longest of the batch:

    torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
    tokenizer(texts, padding="longest")               # instead of padding="max_length"

Samples of like length in one batch (a sampler that sorts by length) save most of what is left, and packing
several into one row all of it.

When it does not help:
Samples are about as long as the batch is wide. A compiled model or a CUDA graph wants few shapes: then fill
up to the next of a few lengths.

Risk:
Shapes change from batch to batch. Whatever counts places (a mean over all of them) must leave filling out
already, or it gives other numbers.
"""

from __future__ import annotations

from findwall.fixes import Facts, Fix, Outcome
from findwall.fixes.less_work.removed_work import on_fewer_rows
from findwall.model.catalogue import UNNEEDED

SAID = "less-padding/found", "less-padding/none"


def use(facts: Facts) -> Outcome:
    return on_fewer_rows(facts, "filled", SAID, "filling-is-left-out")


FIX = Fix((UNNEEDED,), "safe", use, reorders=True, removes=True)
