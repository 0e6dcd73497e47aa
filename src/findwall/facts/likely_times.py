"""What a fix likely does to the step, in the simulator's terms: kernels at the speed that their class
reaches, launches at what the host pays for them.

`whatif.py` says what a fix could do at best, where nothing is lost; the figures here come from curves.

A GPU has only so much power: the larger the part of a step in which large products run, the slower they run.
So a fix that removes what lies between them gives back a little less than what it removes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from findwall.facts.best_changes import floor_in
from findwall.facts.facts import Facts, of_class
from findwall.facts.number_formats import (
    MATH_BYTES,
    likely_under_autocast,
    math_times,
    matrices_of,
)
from findwall.facts.op_shapes import channels_last, under_convolution
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, WAITED_FOR_SHARE
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES, SIXTEEN_BITS
from findwall.replay.calibrate import SLOWEST_PACE, host_parts
from findwall.replay.change import Change, Drop, Replace, Scale
from findwall.replay.curves import curves
from findwall.replay.graph import LAUNCHING, Graph, Node
from findwall.replay.rewiring import nodes_of
from findwall.step.step_facts import StepFacts
from findwall.units import NOT_ZERO_NS, NS_PER_S
from findwall.work.fusion import BATCH_NORM
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts, moving_ns, ops_named

# Where a step launches next to nothing, what an eager op costs the host of the curves. Measured on an H200.
FEW_LAUNCHES = 20
USUAL_LAUNCH_NS = 12_000.0
# Times the median: what a launch takes beyond that is no launching, but something the trace does not name.
# Chosen by hand, not calibrated.
LONG_LAUNCH = 4.0
ALIGNMENT_BYTES = 16  # what a row of a fast product begins at a multiple of
LARGEST_DEPTHWISE = 7  # of a filter's side: what the curves were measured for, and larger ones run otherwise
UNMEASURED = ""
IMAGE_CHANNELS = 4  # of a convolution's input: an image, not a layer's features


# -- the host --------------------------------------------------------------------------------------


def launch_ns(facts: Facts) -> float:
    """What launching one kernel costs this job's host on average, as the calibrated replay has it."""
    parts = host_parts(facts.graph, facts.reading.likely.calibration)[LAUNCHING]
    each = parts[facts.graph.is_kind(Node.ISSUE)]
    each = each[each > 0]
    if len(each) < FEW_LAUNCHES * facts.steps.count:
        return USUAL_LAUNCH_NS
    return float(np.minimum(each, LONG_LAUNCH * np.median(each)).mean())


def host_ns(facts: Facts, what: str) -> float:
    """What something costs this host, told by what an eager op costs it: at the pace of the recording, as an
    edit of the graph has it, for the replay plays it at the host's own."""
    pace = min(facts.reading.likely.calibration.pace, SLOWEST_PACE)
    return curves().host[what] * launch_ns(facts) / pace


def issuing_ns(facts: Facts, rows: I64) -> F64:
    """What issuing each of these device rows costs the host today, at the recording's pace; 0: not known."""
    calibration = facts.reading.likely.calibration
    parts = host_parts(facts.graph, calibration)[LAUNCHING] / min(calibration.pace, SLOWEST_PACE)
    nodes, known = nodes_of(facts.graph, rows)
    cause = facts.graph.cause[nodes]
    found = np.zeros(len(rows))
    found[known] = np.where((cause >= 0) & (facts.graph.kind[cause] == Node.ISSUE), parts[cause], 0.0)
    usual = found[found > 0]
    return np.minimum(found, LONG_LAUNCH * np.median(usual)) if len(usual) else found


def calls_a_step(facts: WorkFacts) -> int:
    """How often the model runs in a step: as often as what it does least often."""
    rows = facts.kernels.op[facts.atoms.index[~of_class(facts, "optimizer", "memcpy")]]
    rows = np.unique(rows[rows >= 0])
    if len(rows) == 0:
        return 1
    events = facts.timeline.events
    key = (
        events.name[rows].astype(np.int64) * (int(events.inputs.max(initial=0)) + 2) + events.inputs[rows] + 1
    )
    return max(int(np.unique(key, return_counts=True)[1].min()) // facts.steps.count, 1)


# -- products --------------------------------------------------------------------------------------


def in_format(facts: WorkFacts, atoms: I64, math: str, layout: str, aligned: bool = False) -> Change:
    """Products in another number format and layout, as fast as such products run; `aligned`: padded."""
    return to_likely(facts, atoms, products_ns(facts, atoms, math, layout, aligned=aligned))


def products_ns(
    facts: WorkFacts,
    atoms: I64,
    math: str,
    layout: str = "nchw",
    share_of_bytes: float = 1.0,
    aligned: bool = False,
) -> F64:
    """How long products take in one number format and layout, by their class: no longer than today, as both
    are faster wherever anybody chooses them. NaN unknown."""
    least = floor_in(facts, atoms, math, share_of_bytes)
    found = np.full(len(atoms), np.nan)
    names = np.array([_curve_of(facts, atom, math, layout, aligned) for atom in atoms.tolist()], object)
    for name in set(names.tolist()) - {""}:
        mine = (names == name) & ~np.isnan(least)
        floor = np.maximum(least[mine], 1.0)
        found[mine] = np.maximum(curves().likely_ns(name, floor), floor)
    shorter: F64 = np.minimum(found, facts.kernels.duration[facts.atoms.index[atoms]])
    return shorter


def _curve_of(facts: WorkFacts, atom: int, math: str, layout: str, aligned: bool) -> str:
    """The curve of one product in another format; empty: it is none."""
    row = facts.op_row(atom)
    name = facts.timeline.name_of(row) if row >= 0 else ""
    kind = "conv" if "conv" in name else facts.kernel_class(atom)
    if kind not in MATRIX_CLASSES or not math:
        return ""
    backward = "backward" in name
    if kind == "conv":
        weight = Arguments(facts.timeline.inputs_of(row)).tensor(2 if backward else 1)
        pass_, filters = "backward" if backward else "forward", _kind_of(weight)
        return f"conv/{math}/{layout}/{pass_}/{filters}" if filters else UNMEASURED
    if kind == "attention":
        return f"attention/{math}/{'backward' if backward else 'forward'}/plain"
    return f"matmul/{math}" if aligned or not _is_odd(facts, row, math) else f"odd/{math}"


def _is_odd(facts: StepFacts, row: int, math: str) -> bool:
    """Whether a product's operands or its result would not lie on 16 bytes in a number format."""
    numbers = ALIGNMENT_BYTES // MATH_BYTES.get(math, 4)
    operands = matrices_of(facts, row)
    leading = [max(one.strides[-2:]) for one in operands if one.strides is not None and min(one.dims) > 1]
    return any(stride % numbers for stride in leading) or any(one.dims[-1] % numbers for one in operands[-1:])


def _kind_of(weight: Tensor | None) -> str:
    """Of a convolution, by its weight: what decides how well it runs."""
    if weight is None or len(weight.dims) < 3:
        return "wide"
    _, inside, *kernel = weight.dims
    if inside == 1:
        return "depthwise" if max(kernel) <= LARGEST_DEPTHWISE else UNMEASURED
    if inside <= IMAGE_CHANNELS:
        return "thin"
    return "1x1" if all(size == 1 for size in kernel) else "wide"


def to_likely(facts: WorkFacts, atoms: I64, ns: F64) -> Change:
    """Kernels of some atoms in so many ns each, of the kernel's own length; NaN: as they are."""
    atoms, ns = atoms[~np.isnan(ns)], ns[~np.isnan(ns)]
    index = facts.atoms.index[atoms]
    own = facts.atoms.own
    total = np.bincount(facts.atoms.index, own, minlength=len(facts.kernels.row))
    then = ns * own[atoms] / np.maximum(facts.kernels.duration[index], 1)
    more = np.bincount(index, then - own[atoms], minlength=len(total))
    moved = np.unique(index)
    factor = 1.0 + more[moved] / np.maximum(total[moved], NOT_ZERO_NS)
    return Change((Scale(facts.kernels.row[moved], np.maximum(factor, 0.0)),)) if len(moved) else Change()


# -- passes over memory ----------------------------------------------------------------------------


def pass_ns(facts: WorkFacts, nbytes: float) -> float:
    """One pass that reads and writes so many bytes, as fast as such kernels are."""
    return float(curves().likely_ns("pointwise", np.array([max(moving_ns(facts, nbytes), 1.0)]))[0])


def in_few_kernels(parts: Iterable[tuple[I64, int, float]]) -> Change:
    """For each of these the device rows, how many kernels are left of them, and what those take together."""
    kept: list[int] = []
    ns: list[float] = []
    gone: list[int] = []
    for rows, kernels, taken in parts:
        every = np.unique(rows).tolist()
        stay = every[:kernels]
        kept += stay
        ns += [taken / max(len(stay), 1)] * len(stay)
        gone += every[len(stay) :]
    return Change((Replace(np.array(kept, np.int64), np.array(ns)), Drop(np.array(gone, np.int64))))


def narrowed_ns(facts: Facts, atoms: I64, layout: str) -> F64:
    """Passes over memory in 16 bits, as far as autocast makes them so: their own time on fewer bytes.

    A batch norm's kernel is another one in each format and layout: there the curves tell.
    """
    left = likely_under_autocast(facts)[atoms]
    found: F64 = facts.kernels.duration[facts.atoms.index[atoms]] * left
    norms = batch_norms(facts, atoms) & (left < 1.0)
    found[norms] = batch_norm_ns(facts, atoms[norms], layout, "bf16", left[norms])
    return found


def turned(facts: WorkFacts) -> Change:
    """Convolutions as fast as they run on channels-last images, in the format they have.

    In fp32, off the tensor cores, as fast as before: a network of such took 1.04 times as long on an H200.
    """
    atoms = np.flatnonzero(of_class(facts, *MATRIX_CLASSES) & under_convolution(facts))
    formats = facts.kernels.math_index[facts.atoms.index[atoms]]
    change = Change()
    for at in np.unique(formats[(formats >= 0) & (formats != MATH_TYPES.index("fp32"))]).tolist():
        change += in_format(facts, atoms[formats == at], MATH_TYPES[at], layout="nhwc")
    return change


def layout_now(facts: StepFacts) -> str:
    """How images lie today, as the curves call it."""
    return "nhwc" if channels_last(facts) else "nchw"


def compiles(made: frozenset[str]) -> bool:
    """Whether generated kernels are among some fixes."""
    return bool(made & {"torch-compile", "reduce-overhead"})


def narrows(made: frozenset[str]) -> bool:
    """Whether autocast is among some fixes."""
    return bool(made & {"bf16-autocast", "fp16-autocast"})


def layout_with(facts: StepFacts, made: frozenset[str]) -> str:
    """How images lie once some fixes are made, as the curves call it."""
    return "nhwc" if "channels-last" in made or compiles(made) else layout_now(facts)


def norms_channels_last(facts: Facts) -> Change:
    """Batch norms in the other layout, faster or slower as their kernels are there."""
    every = np.arange(len(facts.atoms.index))
    atoms = every[batch_norms(facts, every)]
    width = "bf16" if is_narrow(facts) else "fp32"
    return to_likely(facts, atoms, batch_norm_ns(facts, atoms, "nhwc", width, np.ones(len(atoms))))


def batch_norm_ns(facts: Facts, atoms: I64, layout: str, width: str, left: F64) -> F64:
    """Batch norms on so much of their bytes: what they take today, by how the two kernels' curves compare."""
    index = facts.atoms.index[atoms]
    floor = np.maximum(np.nan_to_num(facts.kernels.floor[index]), 1.0)
    today = f"{layout_now(facts)}/{'bf16' if is_narrow(facts) else 'fp32'}"
    backward = np.array(["backward" in (facts.op_name(atom) or "") for atom in atoms.tolist()], bool)
    ratio = np.ones(len(atoms))
    for mine, way in ((backward, "backward"), (~backward, "forward")):
        then = curves().likely_ns(f"norm/batch/{layout}/{width}/{way}", floor[mine] * left[mine])
        ratio[mine] = then / curves().likely_ns(f"norm/batch/{today}/{way}", floor[mine])
    return facts.kernels.duration[index] * ratio


def batch_norms(facts: WorkFacts, atoms: I64) -> Bool:
    """Which atoms are of batch norms."""
    return ops_named(facts.timeline, facts.kernels.op[facts.atoms.index[atoms]], BATCH_NORM)


def is_narrow(facts: Facts) -> bool:
    """Whether most products are of 16-bit numbers."""
    return next(iter(math_times(facts)), "") in SIXTEEN_BITS


# -- the clock under load ------------------------------------------------------------------------------

# Times as long where nothing but products runs, less one: on an H200 large bf16 products kept 0.84 of what a
# few of them reach, TF32 ones 0.88, and 0.93 in steps that do other work as well.
UNDER_LOAD = 1 / 0.84 - 1
ON_TENSOR_CORES = ("tf32", "bf16", "fp16", "fp8", "int8")


def slowed(facts: Facts, graph: Graph, made: frozenset[str], step: float) -> Scale | None:
    """What a changed step of so many ns does to its products; None: next to nothing. Those that no fix
    changed ran under today's load before; those that one did are as fast as a few of them alone."""
    table = facts.kernels
    at = np.flatnonzero(table.is_class(*MATRIX_CLASSES))
    nodes, known = nodes_of(graph, table.row[at])
    at = at[known]
    was, _ = nodes_of(facts.graph, table.row[at])
    own, weight = graph.own[nodes], graph.weight[nodes] / facts.steps.count
    changed = ~np.isclose(own, facts.graph.own[was])
    then = _floor_ns(facts, at, made)
    heavy = np.where(changed, then > MAJORITY_SHARE * own, _near_roof(facts)[at])
    before = float((facts.graph.own[was] * weight)[_near_roof(facts)[at]].sum())
    load = _load(float((own * weight)[heavy].sum()) / max(step, NOT_ZERO_NS))
    times = np.where(changed, load, load / _load(before / facts.step))
    longer = float(((times - 1.0) * own * weight)[heavy].sum())
    if abs(longer) < WAITED_FOR_SHARE * step:
        return None
    return Scale(table.row[at[heavy]], times[heavy])


def _load(share: float) -> float:
    """How much longer products take where they run for such a share of the step."""
    return 1.0 + UNDER_LOAD * min(share, 1.0)


def _near_roof(facts: WorkFacts) -> Bool:
    """Which kernels are products on the tensor cores, near their roof."""
    table = facts.kernels
    on_tensor_cores = np.isin(table.math_index, [MATH_TYPES.index(name) for name in ON_TENSOR_CORES])
    return on_tensor_cores & (np.nan_to_num(table.floor) > MAJORITY_SHARE * table.duration)


def _floor_ns(facts: WorkFacts, at: I64, made: frozenset[str]) -> F64:
    """Floors of products once some fixes are made, by their arithmetic; none of what runs in fp32 then."""
    table = facts.kernels
    formats = table.math_index[at].copy()
    wide = np.isin(formats, [MATH_TYPES.index(name) for name in ("fp32", "tf32")])
    if narrows(made):
        formats[wide] = MATH_TYPES.index("bf16")
    elif "tf32" in made:
        formats[wide] = MATH_TYPES.index("tf32")
    rates = np.array([facts.ceilings.flops.get(name, np.inf) for name in MATH_TYPES])
    rates[[MATH_TYPES.index(name) for name in MATH_TYPES if name not in ON_TENSOR_CORES]] = np.inf
    found: F64 = np.nan_to_num(table.flops[at]) / rates[formats] * NS_PER_S
    return found
