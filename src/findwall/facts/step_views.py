"""The step seen from other sides: by phase and module, by device and stream, and by the FLOPs it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.facts.facts import Facts, serve
from findwall.model.catalogue import MATRIX_CLASSES, SMALL_PART
from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import F64, I64, Intervals, union
from findwall.model.machine import MATH_TYPES
from findwall.step.comms import HOST_COLLECTIVE, is_communication
from findwall.step.links import DOWNLOAD, UPLOAD, nearest
from findwall.step.step_facts import Links, StepFacts, rows_matching
from findwall.units import NOT_ZERO_NS, NS_PER_S, format_share
from findwall.work.work_facts import WorkFacts

MODULES_TOLD = 20  # those that take longest
PHASES = ("loader", "copy", "forward", "backward", "comms", "optimizer", "other")
# Idle time that is a phase of its own, whatever the device does next.
_IDLE_PHASE = {
    "loader-starved": "loader",
    "copy-exposed": "copy",
    "exposed-collective": "comms",
    "pipeline-bubble": "comms",
}
# Idle time in which the host did something of its own: outside of the model's modules it is no phase of it.
_HOSTS_OWN = ("host-work", "gc-pause")
_MODULE = re.compile(r"^nn\.Module: ")


def split_by_phase(facts: Facts) -> dict[str, float]:
    """Nanoseconds of the step in each phase; they sum to the step."""
    total = np.zeros(len(PHASES))
    rows = facts.kernels.row[facts.atoms.index]
    total += np.bincount(_phase_of(facts, rows), facts.own, minlength=len(PHASES))
    busy = total.sum()
    total *= facts.reading.likely.busy / busy if busy > 0 else 0.0
    total += _idle_by_phase(facts)
    # Idle time whose gap is unknown; rounding aside.
    total[PHASES.index("other")] += max(facts.step - float(total.sum()), 0.0)
    return {phase: float(total[at]) for at, phase in enumerate(PHASES)}


def _idle_by_phase(facts: Facts) -> F64:
    """Idle time belongs to what the device waited for; a host busy loading is in the loader."""
    likely = facts.reading.likely
    total = np.zeros(len(PHASES))
    phase = _phase_of(facts, likely.gaps.row)
    known = likely.idle.total - likely.left_over - likely.idle["unstable-steps"]
    scale = known / max(likely.gaps.idle.total, NOT_ZERO_NS)
    outside = np.where(_in_module(facts, likely.gaps.row), phase, PHASES.index("other"))
    columns = [*likely.gaps.before.items(), ("turn-around", likely.gaps.turning)]
    for cause, amounts in columns:
        if cause in _IDLE_PHASE:
            total[PHASES.index(_IDLE_PHASE[cause])] += amounts.sum() * scale
        else:
            where = outside if cause in _HOSTS_OWN else phase
            total += np.bincount(where, amounts * scale, minlength=len(PHASES))
    return total


def _phase_of(facts: WorkFacts, rows: I64) -> I64:
    """The phase each device row was launched in."""
    events, links = facts.timeline.events, facts.links
    launch = links.launch[rows]
    safe = np.maximum(launch, 0)
    issued = events.start[safe]
    # Without any op nothing tells the passes apart.
    first = "forward" if events.is_kind(Kind.OP).any() else "other"
    phase = np.full(len(rows), PHASES.index(first), np.int64)
    phase[links.backward[safe]] = PHASES.index("backward")
    phase[serve(facts, rows, "update", "average")] = PHASES.index("optimizer")
    loading = facts.host.activities["loader-starved"]
    phase[loading.covered_within(issued, issued + 1) > 0] = PHASES.index("loader")
    copies = events.kind[rows] == Kind.MEMCPY
    across = facts.timeline.named(UPLOAD, rows[copies]) | facts.timeline.named(DOWNLOAD, rows[copies])
    phase[copies & across[events.name[rows]]] = PHASES.index("copy")
    phase[np.isin(rows, facts.kernels.row[facts.kernels.communication])] = PHASES.index("comms")
    phase[launch < 0] = PHASES.index("other")
    return phase


def _in_module(facts: StepFacts, rows: I64) -> Bool:
    """Device rows that the model's code launched, as far as the trace has Python's frames."""
    launch = facts.links.launch[rows]
    frames = (
        facts.timeline.events.is_kind(Kind.PYTHON) & facts.timeline.named(_MODULE)[facts.timeline.events.name]
    )
    if not frames.any():
        return np.zeros(len(rows), bool)
    inside: Bool = nearest(facts.links.parent, frames)[np.maximum(launch, 0)] >= 0
    return inside & (launch >= 0)


def split_by_module(facts: Facts) -> dict[str, float]:
    """Device time by module where the trace recorded a hierarchy; empty otherwise."""
    ops = facts.kernels.op[facts.atoms.index]
    extras = np.where(ops >= 0, facts.timeline.events.extra[np.maximum(ops, 0)], -1)
    total: dict[str, float] = {}
    for extra_id in np.unique(extras[extras >= 0]).tolist():
        extra = facts.timeline.details.extra_of(extra_id)
        if extra is not None and extra.module:
            spent = float(facts.own[extras == extra_id].sum())
            total[extra.module] = total.get(extra.module, 0.0) + spent
    return dict(sorted(total.items(), key=lambda item: -item[1])[:MODULES_TOLD])


# -- by device and stream ------------------------------------------------------------------------------


class StreamTime(msgspec.Struct, frozen=True):
    stream: int
    rows: int
    busy: int


class DeviceTime(msgspec.Struct, frozen=True):
    """One device over its span, in ns."""

    device: int
    span: int
    busy: int
    communication: int  # its own and, where the device would wait for it, the host's
    hidden: int  # of the communication: other kernels ran beside it
    streams: tuple[StreamTime, ...]


def device_times(timeline: Timeline, links: Links) -> list[DeviceTime]:
    """Every device of this rank, in order of its number."""
    rows = timeline.rows(*DEVICE_KINDS)
    communication = is_communication(timeline, links, rows)
    devices = timeline.events.device[rows]
    on_host = _host_collectives(timeline)
    return [
        _device(timeline, rows[mine], communication[mine], device, on_host)
        for device, mine in _rows_of_each(devices)
    ]


def _rows_of_each(values: np.ndarray) -> Iterator[tuple[int, I64]]:
    """Every value with its places, in their order: sorted once, however many values there are."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    return zip(distinct.tolist(), np.split(order, first[1:]), strict=False)  # of no values, one empty part


def _host_collectives(timeline: Timeline) -> Intervals:
    rows = timeline.rows(Kind.ANNOTATION, Kind.OP)
    rows = rows_matching(timeline, rows, HOST_COLLECTIVE)
    return union(timeline.events.start[rows], timeline.events.end[rows])


def _device(
    timeline: Timeline, rows: I64, communication: np.ndarray, device: int, on_host: Intervals
) -> DeviceTime:
    events = timeline.events
    start, end = events.start[rows], events.end[rows]
    talk = union(start[communication], end[communication])
    work = union(start[~communication], end[~communication])
    streams = tuple(
        StreamTime(stream, len(mine), union(start[mine], end[mine]).length)
        for stream, mine in _rows_of_each(events.stream[rows])
    )
    span = union(start.min(keepdims=True), end.max(keepdims=True))
    on_host = on_host & span
    kernels = ~communication & (events.kind[rows] == Kind.KERNEL)  # its own copies hide nothing
    hidden = (talk & work) | (on_host & union(start[kernels], end[kernels]))
    busy = union(start, end).length
    return DeviceTime(device, span.length, busy, (talk | on_host).length, hidden.length, streams)


# -- by FLOPs ------------------------------------------------------------------------------------------


class Utilisation(msgspec.Struct, frozen=True):
    """None where it cannot be told; `source` says against what, or why not."""

    mfu: float | None
    hfu: float | None
    peak: float | None  # FLOP/s
    flops: float | None  # a step, without recomputation
    source: str


def utilisation(facts: Facts) -> Utilisation:
    """FLOPs of matmuls, convolutions and attention in one step over the step's time and the peak."""
    kernels, index = facts.kernels, facts.atoms.index
    matrix = kernels.is_class(*MATRIX_CLASSES)[index]
    if not matrix.any():
        return Utilisation(None, None, None, None, "no matmul, convolution or attention in the step")
    flops = kernels.flops[index]
    blind = float(facts.own[matrix & np.isnan(flops)].sum()) / max(float(facts.own[matrix].sum()), 1.0)
    if blind > SMALL_PART:
        why = f"{format_share(blind)} of the matrix time has no shapes to count FLOPs from"
        return Utilisation(None, None, None, None, why)
    counted = matrix & ~np.isnan(flops)
    weighed = flops * facts.weight / facts.steps.count
    hardware = float(weighed[counted].sum())
    model = float(weighed[counted & ~kernels.recompute[index]].sum())
    peak, named = _peak(facts, counted)
    if peak is None:
        return Utilisation(None, None, None, model, "no peak is known for this device")
    seconds = facts.step / NS_PER_S
    mfu, hfu = model / seconds / peak, hardware / seconds / peak
    if hfu > 1.0:
        return Utilisation(None, None, peak, model, f"refused: it comes out above 100 % of the {named} peak")
    return Utilisation(
        mfu, hfu, peak, model, f"work model over the recorded shapes, against the dense {named} peak"
    )


def _peak(facts: WorkFacts, counted: np.ndarray) -> tuple[float | None, str]:
    """The spec peak of 16-bit matrix math, or of the narrower type that does most of the FLOPs."""
    spec = facts.ceilings.spec_flops
    maths = facts.kernels.math_index[facts.atoms.index][counted]
    flops = facts.kernels.flops[facts.atoms.index][counted]
    totals = np.bincount(np.maximum(maths, 0), flops, minlength=len(MATH_TYPES))
    most = MATH_TYPES[int(np.argmax(totals))]
    named = most if most in ("fp8", "int8", "fp4", "fp64") else "bf16" if "bf16" in spec else "fp16"
    return spec.get(named), named
