"""The link between host and device: what copies over it take from pinned memory."""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.host_copies import uploaded
from findwall.hardware import lookup
from findwall.replay.change import Change, HostPaced, Scale, without
from findwall.units import NS_PER_S

# Bytes/s of one PCIe lane by generation, of which large copies reach nine tenths at the most (headers take
# the rest): 57 GB/s over 16 lanes of generation 5, where an H200 was seen to reach 55; 28 of generation 4.
LANE_BYTES_PER_S = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
LINK_REACHED_SHARE = 0.9
USUAL_LANES = 16  # where the driver does not tell
# How the architectures begin whose cards have no more than generation 4. What is not listed may have 5.
OLDER_GENERATION, NEWER_GENERATION = 4, 5
OLDER_ARCHITECTURES = ("volta", "turing", "ga10", "ada", "cdna2")
# Linked to the CPU by NVLink or on its die: copies do not pass over PCIe.
WITHOUT_PCIE = ("GH200", "GB200", "GB300", "GB10", "MI300A", "Thor", "Orin")


def at_link_rate(facts: Facts) -> Change:
    """The same bytes pass over the link at its rate, and nobody waits for them."""
    rate = link_rate(facts)
    rows = np.intersect1d(uploaded(facts), facts.queue.row[facts.queue.paced])
    events = facts.timeline.events
    moved = np.maximum(events.nbytes[rows], 0).astype(np.float64)
    least = moved / rate * NS_PER_S if rate else np.zeros(len(rows))
    factor = np.minimum(least / np.maximum(events.duration[rows], 1), 1.0)
    return Change((Scale(rows, factor), HostPaced(rows, paced=False))) + without("copy-exposed")


def link_rate(facts: Facts) -> float | None:
    """Bytes/s to the device: as measured, else what its PCIe link can carry at the most."""
    if facts.ceilings.h2d_pinned:
        return facts.ceilings.h2d_pinned
    name = facts.ceilings.device
    if any(word in name for word in WITHOUT_PCIE):
        return None
    gpu = lookup(name)
    generation = (
        OLDER_GENERATION if gpu is not None and gpu.arch.startswith(OLDER_ARCHITECTURES) else NEWER_GENERATION
    )
    told, lanes = facts.rank.telemetry.pcie_generation, facts.rank.telemetry.pcie_width
    # A link at rest reports generation 1 or 2: no word of what it carries under load.
    generation = told if told in LANE_BYTES_PER_S else generation
    return LANE_BYTES_PER_S[generation] * (lanes or USUAL_LANES) * LINK_REACHED_SHARE
