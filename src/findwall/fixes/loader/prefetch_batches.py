"""Copy the next batch to the device while this one is computed.

What it does:
A copy on its own stream runs beside kernels. Start it one batch ahead, from pinned memory, and
let the compute stream wait for its event only when the batch is needed. A small dataset can stay on
the device altogether.

When it does not help:
Copies already run beside kernels. Copies from pageable memory overlap with nothing: pin it first.

Risk:
One more batch of device memory. Streams must be synchronised by events and `record_stream`, or data
is read before it has arrived.
"""

from __future__ import annotations

from findwall.facts.memory_copies import at_link_rate, uploaded, uploads
from findwall.fixes import Claim, Facts, Fix, Outcome, Use
from findwall.fixes.loader.loader_refusals import COPIES_HIDDEN
from findwall.replay.change import Change, Drop, OtherStream, without


def use(facts: Facts) -> Outcome:
    copies = uploads(facts)
    figures = {
        "copied_bytes": copies.nbytes,
        "pageable": copies.pageable,
        "waits_ms": facts.spent_ms("copy-exposed"),
    }
    return Use(
        Claim("prefetch-batches/own-stream", figures),
        # The batch lies on the device when it is needed: nothing is copied in the step, nobody waits.
        Change((Drop(uploaded(facts)),)) + without("copy-exposed"),
        after_others=copies.pageable,  # what is not pinned is copied by the host
        likely=lambda made: at_link_rate(facts) + Change((OtherStream(uploaded(facts)),)),
    )


FIX = Fix(("copy-exposed",), "needs-review", use, (COPIES_HIDDEN,), plainer=("pin-memory",))
