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

from findwall.attribute.device_kind import on_cores
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, gain_ms
from findwall.attribute.host_copies import Copies, uploads
from findwall.hardware import lookup
from findwall.model.advice import Advice, no_use, use
from findwall.units import format_bytes

MOVES = ("copy-exposed",)
SAFETY = "safe"

# Bytes/s of one PCIe lane by generation, of which large copies reach nine tenths at the most (headers take
# the rest): 57 GB/s over 16 lanes of generation 5, where an H200 was seen to reach 55; 28 of generation 4.
LANE = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
REACHED = 0.9
LANES = 16
# How the architectures begin whose cards have no more than generation 4. What is not listed may have 5.
OLDER = ("volta", "turing", "ga10", "ada", "cdna2")
# Linked to the CPU by NVLink or on its die: copies do not pass over PCIe.
WITHOUT_PCIE = ("GH200", "GB200", "GB300", "GB10", "MI300A", "Thor", "Orin")


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
        f"from pageable memory, and {a_step(spent)} wait for it.",
        max(gain_ms(facts, *MOVES) - _left_ms(facts, copies, spent), 0.0),
    )


def _left_ms(facts: Facts, copies: Copies, spent: float) -> float:
    """What the same bytes still take from pinned memory: the link carries them no faster.

    Copies that run beside kernels are not waited for, and are not counted.
    """
    rate = _link_rate(facts)
    if rate is None or copies.ms <= 0:
        return 0.0
    return copies.nbytes / rate * 1e3 * min(spent / copies.ms, 1.0)


def _link_rate(facts: Facts) -> float | None:
    """Bytes/s to the device: as measured, else what its PCIe link can carry at the most."""
    if facts.ceilings.h2d_pinned:
        return facts.ceilings.h2d_pinned
    name = facts.ceilings.device
    if any(word in name for word in WITHOUT_PCIE):
        return None
    gpu = lookup(name)
    generation = 4 if gpu is not None and gpu.arch.startswith(OLDER) else 5
    told, lanes = facts.rank.telemetry.pcie_generation, facts.rank.telemetry.pcie_width
    # A link at rest reports generation 1 or 2: no word of what it carries under load.
    generation = told if told in LANE else generation
    return LANE[generation] * (lanes or LANES) * REACHED
