"""Copies: between the host and the device, what their link can carry, and those that stay on the device."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, rows_of
from findwall.machine.gpu_table import lookup
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, HostPaced, Scale, without
from findwall.step.links import DOWNLOAD, PAGEABLE, TELLS_MEMORY, UPLOAD
from findwall.step.step_facts import found_once
from findwall.units import NS_PER_S, ms
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts, ops_named

# Copied to the host in a step: more than a logged value, as a checkpoint is. Chosen by hand, not calibrated.
BULK_BYTES = 1e6
BOTH = 2  # what is there, and what is put behind it
_CAT = re.compile(r"^aten::_?cat$")


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


# -- results that grow by being copied -----------------------------------------------------------------


class Appended(msgspec.Struct, frozen=True):
    """Concatenations that put something behind what the same one gave a step before."""

    atoms: I64
    old: F64  # share of each that was there before
    op: int  # the longest of them; -1: there are none
    dim: int = 0
    added: int = 0  # along that dim


class _Kind(NamedTuple):
    """Concatenations that differ in nothing but how long they are."""

    rest: tuple[int, ...]  # the other dims
    dim: int
    added: int


class _Call(NamedTuple):
    step: int
    length: int  # of the first part
    atom: int


@found_once
def appended(facts: Facts) -> Appended:
    """Those whose first part has in every step the shape of the result of the step before."""
    atoms = np.flatnonzero(ops_named(facts.timeline, facts.kernels.op[facts.atoms.index], _CAT))
    step = facts.queue.step[facts.queue.positions(rows_of(facts, atoms))]
    found: dict[_Kind, list[_Call]] = defaultdict(list)
    for atom, at in zip(atoms.tolist(), step.tolist(), strict=True):
        cat = _joined(facts, facts.op_row(atom))
        if cat is not None:
            kind, length = cat
            found[kind].append(_Call(at, length, atom))
    growing = {kind: mine for kind, mine in found.items() if _grows(mine, kind.added, facts.steps.count)}
    mine = np.array([one.atom for calls in growing.values() for one in calls], np.int64)
    if len(mine) == 0:
        return Appended(mine, np.zeros(0), -1)
    old = [one.length / (one.length + kind.added) for kind, calls in growing.items() for one in calls]
    longest = max(growing, key=lambda kind: sum(facts.own[one.atom] for one in growing[kind]))
    op = facts.op_row(growing[longest][0].atom)
    return Appended(mine, np.array(old), op, longest.dim, longest.added)


def appended_ms(facts: Facts) -> float:
    """What copying takes of what was there before, a step."""
    found = appended(facts)
    return ms(float((facts.own[found.atoms] * found.old).sum()))


def _joined(facts: WorkFacts, op: int) -> tuple[_Kind, int] | None:
    """What is joined behind what, and how long that is; None where it was not recorded, or where not two
    tensors are joined of which the first is the longer one."""
    arguments = Arguments(facts.timeline.inputs_of(op))
    parts, number = arguments.tensor_list(0), arguments.number(1)
    if len(parts) != BOTH or number is None or not parts[0].dims:
        return None
    first, second = parts[0].dims, parts[1].dims
    dim = int(number) % len(first)
    rest = first[:dim] + first[dim + 1 :]
    if len(second) != len(first) or rest != second[:dim] + second[dim + 1 :]:
        return None
    return (_Kind(rest, dim, second[dim]), first[dim]) if first[dim] > second[dim] > 0 else None


def _grows(calls: list[_Call], added: int, steps: int) -> bool:
    """Whether in every step each is longer by what was added in the step before."""
    lengths: list[list[int]] = [[] for _ in range(steps)]
    for one in sorted(calls, key=lambda one: one.length):
        lengths[one.step].append(one.length)
    pairs = list(pairwise(lengths))
    return bool(pairs) and all(now and [one + added for one in now] == after for now, after in pairs)
