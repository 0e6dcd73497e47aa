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
Pinned memory is taken from the system for good; a very large amount slows other programs. A buffer
must not be overwritten before its copy is done.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, no_use, use
from findwall.fixes.job import uploads
from findwall.units import format_bytes
from findwall.walls.evidence import on_cores

MOVES = ("copy-exposed",)
SAFETY = "safe"


def advise(facts: Facts) -> Advice:
    if on_cores(facts):
        return no_use("the job runs on the CPU: nothing is copied to a device")
    spent = facts.spent_ms("copy-exposed")
    copies = uploads(facts)
    if copies.ms <= 0 and spent <= 0:
        return no_use("nothing is copied to the device in the step")
    if not copies.pageable:
        return no_use("the copies already come from pinned memory")
    if spent <= 0.001 * facts.step / 1e6:
        return no_use("no copy to the device is waited for")
    amount = f"{format_bytes(copies.nbytes)} a step come" if copies.nbytes > 0 else "batches come"
    return use(
        f"`DataLoader(…, pin_memory=True)` (or `tensor.pin_memory()`) and `.to(device, "
        f"non_blocking=True)`: {amount} "
        f"from pageable memory, and {a_step(spent)} wait for it."
    )
