"""Copies: between the host and the device, what their link can carry, and those that stay on the device."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, rows_of
from findwall.machine.hardware import lookup
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, HostPaced, Scale, without
from findwall.step.links import DOWNLOAD, PAGEABLE, TELLS_MEMORY, UPLOAD
from findwall.units import NS_PER_S, ms
from findwall.work.work_facts import WorkFacts

# Copied to the host in a step: more than a logged value, as a checkpoint is. Chosen by hand, not calibrated.
BULK_BYTES = 1e6


class Copies(msgspec.Struct, frozen=True):
    """Copies of one direction in the window, a step."""

    ms: float
    nbytes: float
    pageable_ms: float
    told: bool = True  # the names say whether memory is pinned or pageable

    @property
    def pageable(self) -> bool:
        return self.pageable_ms > MAJORITY_SHARE * self.ms


def uploads(facts: WorkFacts) -> Copies:
    return _copies(facts, UPLOAD)


def downloads(facts: WorkFacts) -> Copies:
    return _copies(facts, DOWNLOAD)


def uploaded(facts: WorkFacts) -> I64:
    """The rows of the copies to the device."""
    return _rows(facts, UPLOAD)


def downloaded(facts: WorkFacts) -> I64:
    """The rows of the copies to the host."""
    return _rows(facts, DOWNLOAD)


def _rows(facts: WorkFacts, direction: re.Pattern[str]) -> I64:
    talk = facts.kernels.row[facts.kernels.communication]
    rows = facts.queue.row[~np.isin(facts.queue.row, talk)]  # a collective's own copies are no batch's
    rows = rows[facts.timeline.events.kind[rows] == Kind.MEMCPY]
    found: I64 = rows[matching(facts, rows, direction)]
    return found


def _copies(facts: WorkFacts, direction: re.Pattern[str]) -> Copies:
    events = facts.timeline.events
    rows = _rows(facts, direction)
    pageable = matching(facts, rows, PAGEABLE)
    count = max(facts.steps.count, 1)
    length = events.duration[rows]
    moved = float(np.maximum(events.nbytes[rows], 0).sum())
    return Copies(
        ms=ms(float(length.sum())) / count,
        nbytes=moved / count,
        pageable_ms=ms(float(length[pageable].sum())) / count,
        told=len(rows) == 0 or bool(matching(facts, rows, TELLS_MEMORY).any()),
    )


# -- the link ------------------------------------------------------------------------------------------

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


def at_link_rate(facts: WorkFacts) -> Change:
    """The same bytes pass over the link at its rate, and nobody waits for them."""
    rate = link_rate(facts)
    rows = np.intersect1d(uploaded(facts), facts.queue.row[facts.queue.paced])
    events = facts.timeline.events
    moved = np.maximum(events.nbytes[rows], 0).astype(np.float64)
    least = moved / rate * NS_PER_S if rate else np.zeros(len(rows))
    factor = np.minimum(least / np.maximum(events.duration[rows], 1), 1.0)
    return Change((Scale(rows, factor), HostPaced(rows, paced=False))) + without("copy-exposed")


def link_rate(facts: WorkFacts) -> float | None:
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


# -- on the device -------------------------------------------------------------------------------------

# Kernels by which a convolution library turns images to the layout that it wants, and back.
_CONVERSIONS = re.compile("nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|tonhwc|batched_transpose", re.IGNORECASE)


def turned_by_library(facts: Facts) -> I64:
    """Atoms of copies that a convolution library makes: no line of the job does, only its images' layout."""
    atoms = facts.atoms_of("layout-copies")
    return atoms[matching(facts, rows_of(facts, atoms), _CONVERSIONS)]
