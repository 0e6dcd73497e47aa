"""Collectives: those of the host (gloo, MPI, UCC), and DistributedDataParallel's beside the model."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.facts.facts import Facts
from findwall.facts.step_traits import on_cores
from findwall.machine.gpu_table import vendor
from findwall.model.claims import Claim, Evidence
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64, union
from findwall.model.topology import TOPOLOGY_TOOLS
from findwall.step.call_names import OPTIMIZER_STEP, collective_name
from findwall.step.comms import HOST_COLLECTIVE
from findwall.step.links import DOWNLOAD, UPLOAD
from findwall.step.step_facts import StepFacts, rows_matching
from findwall.units import ms
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

EXPOSED_COLLECTIVE = "exposed-collective"


class HostCollective(msgspec.Struct, frozen=True):
    """Collectives of one name and size."""

    name: str  # "gloo:all_reduce"
    nbytes: float | None  # of one; None where shapes were not recorded
    calls: float  # a step
    ms: float  # a step, with the device idle

    @property
    def library(self) -> str:
        return self.name.partition(":")[0].lower()

    @property
    def evidence(self) -> Evidence:
        return Evidence("", None, self.name, None, self.ms, self._claim("evidence/collective"))

    @property
    def claim(self) -> Claim:
        return self._claim("collective")

    def _claim(self, what: str) -> Claim:
        figures = {"calls": self.calls, "each_bytes": self.nbytes or None, "ms": self.ms}
        return Claim(what, figures, {"op": self.name})


def host_collectives(facts: Facts) -> list[HostCollective]:
    """The collectives of the host, the one that the device waits longest for first."""
    rows = _rows(facts)
    if len(rows) == 0:
        return []
    events = facts.timeline.events
    keys = np.stack([events.name[rows], events.inputs[rows]], axis=1)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    groups = [rows[group.reshape(-1) == at] for at in range(len(distinct))]
    steps = max(len(facts.steps.host) - 1, 1)
    found = [
        HostCollective(facts.timeline.name_of(mine[0]), _bytes(facts, mine[0]), len(mine) / steps, ms(spent))
        for mine, spent in zip(groups, _waited(facts, groups).tolist(), strict=True)
    ]
    return sorted(found, key=lambda one: (-one.ms, one.name, -(one.nbytes or 0.0)))


def _rows(facts: StepFacts) -> I64:
    """Host collectives that begin in the steps looked at."""
    events, host = facts.timeline.events, facts.steps.host
    rows = facts.timeline.rows(Kind.ANNOTATION, Kind.OP)
    rows = rows_matching(facts.timeline, rows, HOST_COLLECTIVE)
    if len(host) < 2:
        return rows
    mine: I64 = rows[(events.start[rows] >= host[0]) & (events.start[rows] < host[-1])]
    return mine


def _bytes(facts: StepFacts, row: int) -> float | None:
    tensors = Arguments(facts.timeline.inputs_of(row)).tensors()
    return float(sum(tensor.elements * tensor.size for tensor in tensors)) if tensors else None


def _waited(facts: Facts, groups: list[I64]) -> F64:
    """The idle time of host collectives, each gap's shared among the groups that are open in it."""
    begin, past = facts.timeline.events.start, facts.timeline.events.end
    talk = facts.host.activities[EXPOSED_COLLECTIVE]
    positions, amounts = facts.idle_rows(EXPOSED_COLLECTIVE)
    start, end = facts.queue.idle_from[positions], facts.queue.idle_until[positions]
    spans = [(union(begin[rows], past[rows]) & talk).covered_within(start, end) for rows in groups]
    covered = np.array(spans, np.float64).reshape(len(groups), len(positions))
    waited: F64 = (covered / np.maximum(covered.sum(axis=0), 1.0) * amounts).sum(axis=1)
    return waited


# -- on the device ---------------------------------------------------------------------------------


def _staging(facts: WorkFacts) -> Bool:
    """Which of the window's rows copy a collective's data to the host or back."""
    events, kernels, index = facts.timeline.events, facts.kernels, facts.atoms.index
    rows = kernels.row[index]
    copies = kernels.communication[index] & (events.kind[rows] == Kind.MEMCPY)
    across = facts.timeline.named(UPLOAD, rows[copies]) | facts.timeline.named(DOWNLOAD, rows[copies])
    mask: Bool = copies & across[events.name[rows]]
    return mask


def staged_bytes(facts: WorkFacts) -> float:
    """Bytes a step that collectives take through the host's memory, the larger way; 0 if they do not."""
    rows = facts.kernels.row[facts.atoms.index[_staging(facts)]]
    events = facts.timeline.events
    down = facts.timeline.named(DOWNLOAD, rows)[events.name[rows]]
    moved = np.bincount(down, np.maximum(events.nbytes[rows], 0), minlength=2)
    return float(moved.max()) / max(facts.steps.count, 1)


def collectives_a_step(facts: Facts) -> float:
    """On the device and on the host; what carries a host collective's data is no collective of its own."""
    on_device = facts.kernels.communication[facts.atoms.index] & ~_staging(facts)
    talk = float(on_device.sum()) / max(facts.steps.count, 1)
    return talk + sum(one.calls for one in host_collectives(facts))


# -- DistributedDataParallel ---------------------------------------------------------------------------

_FORWARD = re.compile(r"^DistributedDataParallel\.forward")
_BROADCAST = re.compile(r"broadcast", re.IGNORECASE)
_ALL_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)


def forward_passes(facts: StepFacts) -> I64:
    """The ranges of DistributedDataParallel's forward passes, in order."""
    return _ranges(facts, _FORWARD)


def buffers_sent(facts: WorkFacts) -> I64:
    """Device rows of broadcasts that a forward pass begins with."""
    events, passes = facts.timeline.events, forward_passes(facts)
    rows, issued = collectives_of(facts, _BROADCAST)
    inside = union(events.start[passes], events.end[passes]).covered_within(issued, issued + 1) > 0
    return rows[inside]


def reduced_too_early(facts: WorkFacts) -> I64:
    """Device rows of gradient reductions after which another forward pass comes before the next update.

    Only what the last pass before a step has added up is ever used.
    """
    events = facts.timeline.events
    rows, issued = collectives_of(facts, _ALL_REDUCE, backward=True)
    passes = events.start[forward_passes(facts)]
    updates = events.start[_ranges(facts, OPTIMIZER_STEP)]
    after = np.append(updates, np.iinfo(np.int64).max)[np.searchsorted(updates, issued)]
    following = np.append(passes, np.iinfo(np.int64).max)[np.searchsorted(passes, issued, side="right")]
    known = after < np.iinfo(np.int64).max  # where the trace ends before the step nobody knows
    return rows[known & (following < after)]


def collectives_of(facts: WorkFacts, pattern: re.Pattern[str], backward: bool = False) -> tuple[I64, I64]:
    """Device rows of one kind of collective, of the forward or backward pass, and when each was issued."""
    rows = facts.kernels.row[np.unique(facts.atoms.index[facts.kernels.communication[facts.atoms.index]])]
    launch = facts.links.launch[rows]
    mine = (launch >= 0) & (facts.links.backward[np.maximum(launch, 0)] == backward)
    rows, launch = rows[mine], launch[mine]
    names = [collective_name(facts.timeline, facts.links, row) for row in rows.tolist()]
    mine = np.array([bool(pattern.search(name)) for name in names], bool)
    return rows[mine], facts.timeline.events.start[launch[mine]]


def _ranges(facts: StepFacts, pattern: re.Pattern[str]) -> I64:
    rows = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION), pattern)
    return rows[np.argsort(facts.timeline.events.start[rows], kind="stable")]


def maker(facts: WorkFacts) -> str | None:
    """Who made the device; None where that is not known, or where it is the cores."""
    return None if on_cores(facts) else vendor(facts.ceilings.device or facts.run.device_name or "") or None


def topology_tool(facts: WorkFacts) -> str | None:
    """The command that shows how this maker's devices are linked; None where the maker is not known."""
    return TOPOLOGY_TOOLS.get(maker(facts) or "")
