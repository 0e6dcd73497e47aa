"""What each kernel is and what it must cost: class, FLOPs, bytes, floor and regime, as columns.

The class is a property of the kernel, the work one of the op that owns it. Everything is worked out once per
distinct (op, inputs) or (kernel name, launch) and spread over the rows.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from findwall.model.catalogue import CLASS_INDEX, KERNEL_CLASSES, MATRIX_CLASSES, NEAR
from findwall.model.events import DEVICE_KINDS, Bool, Kind, Timeline
from findwall.model.intervals import F64, I8, I64
from findwall.model.machine import Ceilings
from findwall.step.comms import is_communication
from findwall.step.kernel_classes import (
    MATH_INDEX,
    classify,
    math_in_name,
    on_tensor_cores_in_tf32,
    uses_tensor_cores,
)
from findwall.step.kernel_names.name_parts import of_library
from findwall.step.parameter_updates import stepping_kernels
from findwall.step.step_facts import Links
from findwall.units import NS_PER_S
from findwall.work.division import Cache, Rows, divide, fill_from_names
from findwall.work.floors import MATRIX_INDEX, floors_of
from findwall.work.guesses import Device, fill_from_chain, fill_from_twins
from findwall.work.op_families.optimizer import parameter_count
from findwall.work.op_owners import Owners, owners
from findwall.work.recomputed_kernels import recomputed
from findwall.work.work_facts import BOUNDS, KernelTable, ops_named

KEY_KINDS = 16  # more than there are kinds of events: leaves each its place in a packed key
_OF_TORCH = re.compile(r"^aten::")


def kernel_table(
    timeline: Timeline,
    links: Links,
    ceilings: Ceilings,
    steps_hint: int | None = None,
    counted: F64 | None = None,
) -> KernelTable:
    """Work out every device row of one timeline. `steps_hint`: how many steps the trace holds, if known;
    `counted`: bytes that counters saw each row move, NaN where none did."""
    rows = timeline.rows(*DEVICE_KINDS)
    communication = is_communication(timeline, links, rows)
    device = _columns(timeline, rows, _classes(timeline, links, rows, communication))
    owned = owners(timeline, links, rows)
    cache = Cache(float(ceilings.l2_bytes or 0), ceilings.sm_count or 0)
    shares = divide(device, owned, parameter_count(timeline, steps_hint), cache)
    shares.flops[communication] = np.nan
    shares.nbytes[communication] = np.nan
    math_index = _math(device, owned)
    fill_from_twins(device, shares, math_index, ~communication)
    fill_from_names(device, shares, ~communication)
    fill_from_chain(device, shares, ~communication, _limits(ceilings))
    if counted is not None:
        np.copyto(shares.nbytes, counted, where=~np.isnan(counted) & ~communication)
    tensor_core = device.by_name(slice(None), lambda name: uses_tensor_cores(name) is True)
    called = device.by_name(slice(None), of_library) | ops_named(timeline, owned.op, _OF_TORCH)
    floors = floors_of(device, shares, math_index, owned.works, tensor_core, called, ceilings)
    return KernelTable(
        row=rows,
        start=timeline.events.start[rows],
        end=timeline.events.end[rows],
        op=owned.op,
        class_index=device.class_index.astype(np.int8),
        math_index=math_index,
        flops=shares.flops,
        bytes=shares.nbytes,
        floor=floors.floor,
        bound=floors.bound,
        misaligned=floors.misaligned,
        fast_path_off=floors.fast_path_off,
        better_floor=floors.better,
        recompute=recomputed(timeline, links, rows),
        communication=communication,
        above_spec=floors.above_spec,
        modelled=~np.isnan(shares.nbytes),
        cast=shares.cast,
        orphan=links.launch[rows] < 0,
    )


def _limits(ceilings: Ceilings) -> Device:
    return Device(
        multiprocessors=ceilings.sm_count or 0,
        flops=max(ceilings.spec_flops.values(), default=np.inf),
        bandwidth=ceilings.spec_bandwidth or np.inf,
        cache=float(ceilings.l2_bytes or 0),
    )


def _columns(timeline: Timeline, rows: I64, class_index: I64) -> Rows:
    events = timeline.events
    return Rows(
        timeline=timeline,
        row=rows,
        name=events.name[rows],
        kind=events.kind[rows],
        duration=(events.end[rows] - events.start[rows]).astype(np.float64),
        blocks=_blocks(timeline, rows),
        classes=list(KERNEL_CLASSES),
        class_index=class_index,
    )


def _blocks(timeline: Timeline, rows: I64) -> F64:
    """Blocks of each row's grid; NaN where the launch shape is not recorded."""
    distinct, inverse = np.unique(timeline.events.launch[rows], return_inverse=True)
    counts = np.full(len(distinct), np.nan)
    for at, index in enumerate(distinct.tolist()):
        launch = timeline.details.launch_of(index)
        # Some recorders write a grid of no blocks where they know none.
        if launch is not None and launch.grid is not None and all(side > 0 for side in launch.grid):
            counts[at] = float(np.prod(np.array(launch.grid, np.float64)))
    return counts[inverse]


def _classes(timeline: Timeline, links: Links, rows: I64, communication: Bool) -> I64:
    """The class of each row; plain kernels of an update are the optimizer's: without fusion it is plain
    arithmetic."""
    events = timeline.events
    op = links.op[rows]
    op_name = np.where(op >= 0, events.name[np.maximum(op, 0)], -1).astype(np.int64)
    width = len(timeline.names) + 1
    keys = (events.name[rows].astype(np.int64) * width + op_name + 1) * KEY_KINDS + events.kind[rows]
    distinct, inverse = np.unique(keys, return_inverse=True)
    found = np.zeros(len(distinct), np.int64)
    for at, key in enumerate(distinct.tolist()):
        kind, pair = key % KEY_KINDS, key // KEY_KINDS
        op_index = pair % width - 1
        name = timeline.names[op_index] if op_index >= 0 else None
        found[at] = CLASS_INDEX[classify(timeline.names[pair // width], name, Kind(kind))]
    classes: I64 = found[inverse]
    plain = np.isin(classes, [CLASS_INDEX[name] for name in ("pointwise", "copy", "reduce")])
    classes[plain & stepping_kernels(timeline, links, rows)] = CLASS_INDEX["optimizer"]
    classes[communication] = CLASS_INDEX["collective"]
    return classes


def _math(device: Rows, owned: Owners) -> I8:
    """The number format of each row: its op's data, except that fp32 on tensor cores is tf32."""
    in_name = device.by_name(slice(None), lambda name: MATH_INDEX.get(math_in_name(name) or "", -1), np.int8)
    tf32 = device.by_name(slice(None), on_tensor_cores_in_tf32)
    of_work = np.array([MATH_INDEX.get(work.math or "", -1) for work in owned.works] + [-1], np.int8)[
        owned.work
    ]
    multiplies = np.isin(device.class_index, MATRIX_INDEX)
    math_index: I8 = np.where(
        of_work >= 0, of_work, np.where(multiplies, in_name, MATH_INDEX["fp32"])
    ).astype(np.int8)
    fp64 = math_index == MATH_INDEX["fp64"]
    math_index[~multiplies & ~fp64] = MATH_INDEX["fp32"]
    math_index[multiplies & (math_index == MATH_INDEX["fp32"]) & tf32] = MATH_INDEX["tf32"]
    return math_index


# -- cores that nobody measured ------------------------------------------------------------------------

# What one core does a second in fp32, and what memory it has for itself: the slowest and the fastest.
CORE_FLOPS = (30e9, 150e9)
CORE_BYTES = (3e9, 20e9)
# FLOPs a byte that no core balances.
MEMORY_BOUND_BELOW, COMPUTE_BOUND_ABOVE = CORE_FLOPS[0] / CORE_BYTES[1], CORE_FLOPS[1] / CORE_BYTES[0]
# What one pass over memory is no matter of: their passes are counted where they could be fused.
FUSED_CLASSES = ("pointwise", "copy", "gather", "optimizer")
# A product this short is over before its cores are up to speed. Chosen by hand, not calibrated.
SHORT_PRODUCT_NS = 5_000


def taken_at_their_word(kernels: KernelTable, used: float | None) -> KernelTable:
    """The table with regimes and floors as far as they need no ceiling. `used`: share of the cores."""
    intensity = np.divide(
        kernels.flops, kernels.bytes, out=np.full(len(kernels.row), np.nan), where=kernels.bytes > 0
    )
    matrix = kernels.is_class(*MATRIX_CLASSES)
    short = matrix & (kernels.duration <= SHORT_PRODUCT_NS) & kernels.modelled
    arithmetic = matrix & ~short & (intensity > COMPUTE_BOUND_ABOVE)
    memory = kernels.modelled & ~short & (~matrix | (intensity < MEMORY_BOUND_BELOW))
    bound = kernels.bound.copy()
    for where, name in ((short, "latency"), (arithmetic, "compute"), (memory, "bandwidth")):
        bound[where] = BOUNDS.index(name)
    floor = kernels.floor.copy()
    floor[short] = 0.0
    floor[memory] = kernels.duration[memory]
    # Nobody measured the memory, but no memory is that slow.
    least = kernels.bytes / CORE_BYTES[0] * NS_PER_S
    crawls = memory & ~kernels.is_class(*FUSED_CLASSES) & (least < NEAR * kernels.duration)
    floor[crawls] = least[crawls]
    floor[arithmetic] = kernels.duration[arithmetic] * (1.0 if used is None else used)
    return replace(kernels, bound=bound, floor=floor)
