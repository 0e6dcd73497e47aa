"""Copy batches from pinned memory, without blocking.

What it does:
Ordinary memory can be paged out, so a copy from it goes through a staging buffer at the host's pace
(about 9 GB/s) and blocks the call. From pinned memory the device fetches the data itself, several
times faster, while the host goes on:

    DataLoader(…, pin_memory=True)
    batch = batch.to(device, non_blocking=True)

When it does not help:
Copies already come from pinned memory, or they run beside kernels and nobody waits for them.

Risk:
The system cannot use pinned memory for anything else; a very large amount slows other programs. A buffer
must not be overwritten before its copy is done.
"""

from __future__ import annotations

from findwall.attribute.device_kind import on_cores
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, step_ms
from findwall.attribute.host_copies import uploads
from findwall.attribute.host_link import at_link_rate
from findwall.fixes import CannotTell, Fix, NoUse, Outcome, surely
from findwall.model.catalogue import WAITED_FOR_SHARE
from findwall.units import format_bytes

MOVES = ("copy-exposed",)


def advise(facts: Facts) -> Outcome:
    if on_cores(facts):
        return NoUse("the job runs on the CPU: nothing is copied to a device", obvious=True)
    spent = facts.spent_ms("copy-exposed")
    copies = uploads(facts)
    if copies.ms <= 0 and spent <= 0:
        return NoUse("nothing is copied to the device in the step")
    if copies.told and not copies.pageable:
        return NoUse("the copies already come from pinned memory")
    if spent <= WAITED_FOR_SHARE * step_ms(facts):
        return NoUse("the device hardly waits for copies")
    if not copies.told:
        return CannotTell("the copies' names do not say whether their memory is pinned")
    amount = f"{format_bytes(copies.nbytes)} per step comes" if copies.nbytes > 0 else "batches come"
    return surely(
        "Use `DataLoader(…, pin_memory=True)` (or `tensor.pin_memory()`) and `.to(device, "
        "non_blocking=True)`: "
        f"{amount} from pageable memory, and the device waits {a_step(spent)} for it.",
        at_link_rate(facts),
    )


FIX = Fix(MOVES, "safe", advise, tried=7)
