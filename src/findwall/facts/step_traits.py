"""What the step is like: on a GPU or cores, training, compiled or replayed."""

from __future__ import annotations

import re

import numpy as np

from findwall.facts.facts import Facts, matching, of_class, rows_of
from findwall.facts.gradient_free_work import backward_starts, unrecorded_rows
from findwall.machine.hardware import vendor
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.captured_ops import is_replayed
from findwall.step.host_activity import rows_matching
from findwall.step.links import nearest
from findwall.step.parameter_updates import between_passes, on_shapes, parameter_shapes
from findwall.step.step_bounds import OPTIMIZER_STEP, optimizers
from findwall.step.step_facts import found_once

HAVE_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # optimizers that take fused=True, torch 2.11
_GENERATED = re.compile(r"^triton_(?:poi|red|per|for|tem|unk)_")
_COMPILED_RANGE = re.compile(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


def is_training(facts: Facts) -> bool:
    return bool(facts.links.backward.any()) or bool(optimizers(facts.timeline))


def updates_itself(facts: Facts) -> bool:
    """Whether the job's own code updates the parameters, and no optimizer object does."""
    return bool(facts.kernels.own_update.any())


def range_names(facts: Facts) -> list[str]:
    """Names of the ranges that a person or a library put around host work."""
    rows = facts.timeline.rows(Kind.ANNOTATION)
    return [facts.timeline.names[at] for at in np.unique(facts.timeline.events.name[rows]).tolist()]


def compiled_share(facts: Facts) -> float:
    """Share of the device's time in kernels that torch.compile generated."""
    total = float(facts.own.sum())
    generated = matching(facts, facts.kernels.row[facts.atoms.index], _GENERATED)
    return float(facts.own[generated].sum()) / total if total > 0 else 0.0


def is_compiled(facts: Facts) -> bool:
    return compiled_share(facts) > 0 or any(_COMPILED_RANGE.search(name) for name in range_names(facts))


def graph_share(facts: Facts) -> float:
    """Share of the device's rows that a graph launch issued; copies often stay outside and do not count."""
    rows = facts.kernels.row[facts.atoms.index]
    launch = facts.links.launch[rows[facts.timeline.events.kind[rows] != Kind.MEMCPY]]
    launch = launch[launch >= 0]
    return float(matching(facts, launch, _GRAPH_LAUNCH).mean()) if len(launch) else 0.0


def captured_share(facts: Facts) -> float | None:
    """Share of the replayed kernels' time whose op a capture tells; None where nothing is replayed."""
    kernels = facts.kernels
    replayed = is_replayed(facts.timeline, facts.links, kernels.row)
    total = float(kernels.duration[replayed].sum())
    if not total:
        return None
    told = facts.timeline.events.kind[np.maximum(kernels.op, 0)] == Kind.CAPTURED
    return float(kernels.duration[replayed & told & (kernels.op >= 0)].sum()) / total


def has_shapes(facts: Facts) -> bool:
    return bool(facts.timeline.details.inputs)


def calls_around(facts: Facts, atoms: I64, names: frozenset[str]) -> I64:
    """For each atom the row of the op of such a name it lies in, or its forward op does; -1 where none is."""
    events, links = facts.timeline.events, facts.links
    named = np.array([name in names for name in facts.timeline.names], bool)
    calls = events.is_kind(Kind.OP) & named[events.name]
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    if not calls.any():
        return np.full(len(ops), -1, np.int64)
    around = nearest(facts.timeline, links.parent, calls)
    forward = np.where(ops >= 0, links.forward[np.maximum(ops, 0)], -1)
    own = np.where(ops >= 0, around[np.maximum(ops, 0)], -1)
    return np.where((own < 0) & (forward >= 0), around[np.maximum(forward, 0)], own)


# -- GPU or cores --------------------------------------------------------------------------------------

TOPOLOGY_TOOLS = {"nvidia": "nvidia-smi topo -m", "amd": "rocm-smi --showtopo"}


def on_cores(facts: Facts) -> bool:
    """A CPU job: the device is the cores, and its kernels are the ops themselves."""
    return facts.rank.device_kind == "cpu"


def device_word(facts: Facts) -> str:
    return "CPU" if on_cores(facts) else "GPU"


def pieces(facts: Facts) -> str:
    return "ops" if on_cores(facts) else "kernels"


def maker(facts: Facts) -> str | None:
    """Who made the device; None where that is not known, or where it is the cores."""
    return None if on_cores(facts) else vendor(facts.ceilings.device or facts.run.device_name or "") or None


def topology_tool(facts: Facts) -> str | None:
    """The command that shows how this maker's devices are linked; None where the maker is not known."""
    return TOPOLOGY_TOOLS.get(maker(facts) or "")


# -- what runs beside the model ---------------------------------------------------------------------------


# Changes that mix something in: gradients that are zeroed and weights that are clipped are no averages.
_MIXES = re.compile(r"^aten::(copy|lerp|add|sub|addcmul)_$")


@found_once
def averages(facts: Facts) -> I64:
    """The atoms of it, if there is one."""
    timeline, links = facts.timeline, facts.links
    atoms = np.flatnonzero(~of_class(facts, "optimizer", *MATRIX_CLASSES))
    rows = facts.kernels.row[facts.atoms.index[atoms]]
    ops = np.unique(links.op[rows])
    ops = ops[ops >= 0]
    ops = ops[_behind_optimizer(facts, ops)]
    wanted = parameter_shapes(timeline)
    if len(ops) == 0 or not wanted:
        return np.zeros(0, np.int64)
    window = between_passes(timeline, links, ops)
    ops, window = ops[window >= 0], window[window >= 0]
    on_weights, changed = on_shapes(timeline, ops, wanted)
    changes = on_weights & timeline.named(_MIXES, ops)[timeline.events.name[ops]]
    covered = {shape for shape, one in zip(changed, changes.tolist(), strict=True) if one} & wanted
    if len(covered) <= MAJORITY_SHARE * len(wanted):
        return np.zeros(0, np.int64)
    at, windows = timeline.events.start[ops], int(window.max()) + 1
    first, last = np.full(windows, np.iinfo(np.int64).max), np.full(windows, -1, np.int64)
    np.minimum.at(first, window[on_weights], at[on_weights])
    np.maximum.at(last, window[changes], at[changes])
    return atoms[np.isin(links.op[rows], ops[(at >= first[window]) & (at <= last[window])])]


def _behind_optimizer(facts: Facts, ops: I64) -> Bool:
    """Which of these come after an optimizer's step, with no backward pass between: clipping is not one."""
    events = facts.timeline.events
    ranges = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    ends = np.sort(events.end[ranges])
    engine = backward_starts(facts)
    at = events.start[ops]
    done = np.append(-1, ends)[np.searchsorted(ends, at, side="right")]
    return done > np.append(-1, engine)[np.searchsorted(engine, at)]


# -- all of it -----------------------------------------------------------------------------------------


@found_once
def rows_beside_the_model(facts: Facts) -> I64:
    """Device rows without gradients, and those of an average of the weights."""
    return np.union1d(unrecorded_rows(facts), rows_of(facts, averages(facts)))


@found_once
def beside_the_model(facts: Facts) -> Bool:
    """Which atoms are of such rows."""
    return np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), rows_beside_the_model(facts))


# -- the loss ------------------------------------------------------------------------------------------


@found_once
def behind_the_products(facts: Facts) -> I64:
    """The atoms of it, forward and backward."""
    row, launch = facts.queue.row, facts.links.launch[facts.queue.row]
    back = (launch >= 0) & facts.links.backward[np.maximum(launch, 0)]
    products = np.flatnonzero(np.isin(row, rows_of(facts, np.flatnonzero(of_class(facts, *MATRIX_CLASSES)))))
    if len(products) == 0:
        return np.zeros(0, np.int64)
    place = np.arange(len(row))
    before, after = np.searchsorted(products, place) - 1, np.searchsorted(products, place, side="right")
    known = (before >= 0) & (after < len(products)) & ~np.isin(place, products)
    before, after = products[np.maximum(before, 0)], products[np.minimum(after, len(products) - 1)]
    mine = known & ~back[before] & back[after] & (facts.queue.step[before] == facts.queue.step[after])
    return np.flatnonzero(np.isin(rows_of(facts, np.arange(len(facts.atoms.index))), row[mine]))
